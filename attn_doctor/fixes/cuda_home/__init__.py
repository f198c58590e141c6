"""Which CUDA toolkit a build should take, and how the user's shell comes to know it.

`judging` weighs every toolkit, `exports` and `hooks` put the choice into words of each shell,
`proof` asks torch and NVIDIA's tools what they then resolve, `places` and `writing` keep it for
later shells, `advice` and `installing` are for machines where no toolkit fits.
"""
