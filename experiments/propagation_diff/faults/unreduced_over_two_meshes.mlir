sdy.mesh @mesh = <["x"=2, "y"=2]>
sdy.mesh @other = <["z"=2, "w"=2]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}], unreduced={"x"}>}) -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@other, [{}, {}]>}) {
  %0 = sdy.reshard %a <@other, [{}, {}]> : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
