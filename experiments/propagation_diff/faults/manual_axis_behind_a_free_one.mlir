// The in-sharding leaves out the manual axis "m". Shardy looks for the first free axis by halving,
// which expects manual axes in front: here "f" is lost, and with {"f", "g", "m"} the body gets "m" and is malformed.
sdy.mesh @mesh = <["m"=2, "f"=2]>
func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"f", "m"}]>}) -> tensor<8xf32> {
  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{?}]>] out_shardings=[<@mesh, [{?}]>] manual_axes={"m"} (%b: tensor<8xf32>) {
    %1 = stablehlo.negate %b : tensor<8xf32>
    sdy.return %1 : tensor<8xf32>
  } : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
