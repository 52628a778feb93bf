// Nobody uses %0, so Shardy's rewriter removes it in the round of priority 0; its round of priority 1 then goes back to the
// removed op (the process ends with a segmentation fault, or worse, goes on). Ours leaves out what is gone.
sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = stablehlo.negate %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x", ?}p1, {?}]>]>} : tensor<8x8xf32>
  %1 = stablehlo.tanh %a : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
