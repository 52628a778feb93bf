"""Graph networks: jraph, and equivariant ones of e3nn."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from programs.registry import Made, f32, ids, program, trained, warm


@program("jraph", "optax", rows=("senders", "receivers"))
def jraph_graph_network() -> Made:
    """jraph.GraphConvolution and GAT on one graph: gathers and segment sums over edges."""
    import jraph

    senders, receivers = ids(24, 64), ids(24, 64)
    first, second, attention = f32(16, 32) / 4, f32(32, 8) / 5, f32(64, 1) / 8

    def step(weights: Any, nodes: Any, senders: Any, receivers: Any, labels: Any) -> Any:
        def loss(weights: Any) -> Any:
            graph = jraph.GraphsTuple(nodes, None, receivers, senders, None, jnp.array([24]), jnp.array([64]))
            graph = jraph.GraphConvolution(lambda n: jnp.tanh(n @ weights[0]), symmetric_normalization=True)(graph)
            layer = jraph.GAT(
                lambda n: n,
                lambda s, r, e: jnp.concatenate([s, r], -1) @ weights[2],
                node_update_fn=lambda n: n @ weights[1],
            )
            logits = layer(graph).nodes
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, grads = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda p, g: p - 0.1 * g, weights, grads), value

    return Made(step, ((first, second, attention),), (f32(24, 16), senders, receivers, ids(8, 24)))


@program("jraph", "dm-haiku", "optax", rows=("batch/2", "batch/3"))
def jraph_interaction_network() -> Made:
    """jraph.GraphNetwork with haiku MLPs on edges, nodes and globals of a batch of padded graphs."""
    import haiku as hk
    import jraph

    def forward(nodes: Any, edges: Any, senders: Any, receivers: Any) -> Any:
        graph = jraph.GraphsTuple(
            nodes, edges, receivers, senders, jnp.zeros((4, 8)), jnp.array([8, 8, 8, 8]), jnp.array([16, 16, 16, 16])
        )
        for _ in range(2):
            network = jraph.GraphNetwork(
                jraph.concatenated_args(hk.nets.MLP([32, 16])),
                jraph.concatenated_args(hk.nets.MLP([32, 16])),
                jraph.concatenated_args(hk.nets.MLP([32, 8])),
                aggregate_edges_for_nodes_fn=jraph.segment_mean,
            )
            graph = network(graph)
        return graph.globals

    net = hk.without_apply_rng(hk.transform(forward))
    offset = jnp.repeat(jnp.arange(4, dtype=jnp.int32) * 8, 16)
    batch = f32(32, 8), f32(64, 8), ids(8, 64) + offset, ids(8, 64) + offset, f32(4, 8)
    params = net.init(jax.random.key(0), *batch[:4])
    tx = optax.adam(1e-3)

    def loss(params: Any, nodes: Any, edges: Any, senders: Any, receivers: Any, targets: Any) -> Any:
        return optax.l2_loss(net.apply(params, nodes, edges, senders, receivers), targets).mean()

    return Made(trained(loss, tx), (params, warm(tx.init(params))), batch)


@program("e3nn-jax", "optax", rows=("senders", "receivers"))
def e3nn_message_passing() -> Made:
    """e3nn-jax: tensor products with spherical harmonics of edges, scattered to nodes."""
    import e3nn_jax as e3nn

    hidden, harmonics, count = e3nn.Irreps("8x0e + 4x1o"), e3nn.Irreps("0e + 1o"), 16

    def messages(nodes: Any, positions: Any, senders: Any, receivers: Any) -> Any:
        x = e3nn.IrrepsArray(hidden, nodes)
        along = positions[receivers] - positions[senders] + 0.1
        edges = e3nn.spherical_harmonics(harmonics, e3nn.IrrepsArray("1o", along), normalize=True)
        return e3nn.tensor_product(x[senders], edges).regroup()

    batch = f32(count, hidden.dim), f32(count, 3), ids(count, 64), ids(count, 64), f32(count, hidden.dim)
    mixed = e3nn.FunctionalLinear(jax.eval_shape(messages, *batch[:4]).irreps, hidden)
    weights = [f32(*i.path_shape) / 8 for i in mixed.instructions]

    def step(weights: Any, nodes: Any, positions: Any, senders: Any, receivers: Any, targets: Any) -> Any:
        def loss(weights: Any) -> Any:
            mixing = jax.vmap(lambda m: mixed(weights, m))(messages(nodes, positions, senders, receivers))
            out = e3nn.scatter_sum(mixing, dst=receivers, output_size=count)
            return jnp.square(out.array - targets).mean()

        value, grads = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, grads), value

    return Made(step, (weights,), batch)
