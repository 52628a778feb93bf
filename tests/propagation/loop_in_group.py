"""A module with a loop whose argument is in a sharding group with a value outside of it."""

LOOP = """
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%a: tensor<8x8xf32>{of_carried}, %b: tensor<8x8xf32>{of_other}) -> (tensor<8x8xf32>, tensor<8x8xf32>) {{
  %i = stablehlo.constant dense<0> : tensor<i32>
  %other = stablehlo.negate %b : tensor<8x8xf32>
  sdy.sharding_group %other group_id=0 : tensor<8x8xf32>
  %r:2 = stablehlo.while(%j = %i, %carried = %a) : tensor<i32>, tensor<8x8xf32>
  cond {{
    %p = stablehlo.compare LT, %j, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    sdy.sharding_group %carried group_id=0 : tensor<8x8xf32>
    %z = stablehlo.tanh %carried : tensor<8x8xf32>
    stablehlo.return %j, %z : tensor<i32>, tensor<8x8xf32>
  }}
  {behind}
  return %r#1, %other : tensor<8x8xf32>, tensor<8x8xf32>
}}
"""
