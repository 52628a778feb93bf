"""Probability and reinforcement learning: numpyro, blackjax, distrax, rlax, ott."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from programs.registry import Made, f32, ids, program


@program("numpyro", "optax", rows=("args",))
def numpyro_svi() -> Made:
    """numpyro: stochastic variational inference of a Bayesian logistic regression, with its own keys."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    def model(x: Any, y: Any) -> None:
        with numpyro.plate("features", x.shape[1]):
            w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

    svi = SVI(model, autoguide.AutoNormal(model), optax.sgd(1e-3), Trace_ELBO())
    x, y = f32(64, 16), ids(2, 64).astype(jnp.float32)
    return Made(svi.update, (svi.init(jax.random.key(0), x, y),), (x, y))


@program("blackjax", rows=("x", "y"))
def blackjax_hmc() -> Made:
    """blackjax: Hamiltonian Monte Carlo, each step with a key of its own."""
    import blackjax

    def step(state: Any, key: Any, x: Any, y: Any) -> Any:
        def log_density(w: Any) -> Any:
            return -jnp.square(x @ w["slope"] + w["shift"] - y).sum() - 0.5 * jnp.square(w["slope"]).sum()

        key, own = jax.random.split(key)
        kernel = blackjax.hmc(log_density, 1e-3, jnp.ones(17), num_integration_steps=4)
        state, info = kernel.step(own, state)
        return state, key, info.acceptance_rate

    x, y = f32(64, 16), f32(64)
    position = {"slope": f32(16) / 4, "shift": jnp.float32(0.1)}
    density, gradient = jax.value_and_grad(
        lambda w: -jnp.square(x @ w["slope"] + w["shift"] - y).sum() - 0.5 * jnp.square(w["slope"]).sum()
    )(position)
    state = blackjax.mcmc.hmc.HMCState(position, density, gradient)
    return Made(step, (state, jax.random.key(1)), (x, y))


@program("distrax", "dm-haiku", "optax", rows=("x",))
def distrax_flow() -> Made:
    """distrax: a normalizing flow of masked couplings with rational quadratic splines, its conditioners of haiku."""
    import distrax
    import haiku as hk

    def log_prob(x: Any) -> Any:
        layers = []
        for number in range(2):
            conditioner = hk.Sequential([hk.Linear(32), jax.nn.relu, hk.Linear(8 * 13), hk.Reshape((8, 13))])
            layers.append(
                distrax.MaskedCoupling(
                    mask=jnp.arange(8) % 2 == number, conditioner=conditioner,
                    bijector=lambda p: distrax.RationalQuadraticSpline(p, -4.0, 4.0),
                )
            )  # fmt: skip
        base = distrax.MultivariateNormalDiag(jnp.zeros(8), jnp.ones(8))
        return distrax.Transformed(base, distrax.Inverse(distrax.Chain(layers))).log_prob(x)

    net, x = hk.without_apply_rng(hk.transform(log_prob)), f32(16, 8)
    params = net.init(jax.random.key(0), x)

    def step(params: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(lambda p: -net.apply(p, x).mean())(params)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), value

    return Made(step, (params,), (x,))


@program("rlax", "dm-haiku", "optax", rows=("seen", "actions", "rewards"))
def rlax_q_learning() -> Made:
    """rlax: double Q-learning with a target network that follows, haiku MLPs, clipped gradients."""
    import haiku as hk
    import rlax

    net = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([32, 4])(x)))
    seen, after = f32(16, 8), f32(16, 8)
    params = net.init(jax.random.key(0), seen)

    def step(params: Any, target: Any, seen: Any, after: Any, actions: Any, rewards: Any) -> Any:
        def loss(params: Any) -> Any:
            error = jax.vmap(rlax.double_q_learning)(
                net.apply(params, seen), actions, rewards, jnp.full(16, 0.9), net.apply(target, after),
                net.apply(params, after),
            )  # fmt: skip
            return rlax.huber_loss(error).mean()

        value, grads = jax.value_and_grad(loss)(params)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
        return params, optax.incremental_update(params, target, 0.05), value

    return Made(step, (params, params), (seen, after, ids(4, 16), f32(16)))


@program("ott-jax", rows=("x",))
def ott_sinkhorn() -> Made:
    """ott-jax: points moved along the gradient of a Sinkhorn divergence, through its implicit differentiation."""
    from ott.geometry import pointcloud
    from ott.solvers import linear

    def step(cloud: Any, y: Any) -> Any:
        def cost(x: Any) -> Any:
            geometry = pointcloud.PointCloud(x, y, epsilon=0.5)
            return linear.solve(geometry, max_iterations=50).reg_ot_cost

        value, grad = jax.value_and_grad(cost)(cloud["x"])
        return {"x": cloud["x"] - 0.5 * grad}, value

    return Made(step, ({"x": f32(32, 4)},), (f32(32, 4) + 1,))
