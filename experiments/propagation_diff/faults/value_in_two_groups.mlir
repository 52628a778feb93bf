// With a strategy named (no import passes, which would unite the two groups) Shardy ends the process; ours says what is wrong.
sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  sdy.sharding_group %a group_id=0 : tensor<8x8xf32>
  sdy.sharding_group %a group_id=1 : tensor<8x8xf32>
  return %a : tensor<8x8xf32>
}
