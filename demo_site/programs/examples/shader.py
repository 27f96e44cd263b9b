"""Read the shader of an optimizer"""

from optirs_web.runtime.rule_kernels import UpdateKernel
from optirs_web.runtime.rules import Rule
from optirs_web.wgsl import package_loader, print_wgsl

# The mathematics is a pure function...
rule = package_loader()(("optimizers", "sgd"))
print(print_wgsl(rule))

# ...and the compute shader around it is generated. Flags choose what is in it.
print("// The whole shader, with momentum:")
print(UpdateKernel.of(Rule("sgd"), (("nesterov", False), ("use_momentum", True))).wgsl("tint"))
