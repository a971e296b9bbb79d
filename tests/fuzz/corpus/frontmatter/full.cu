/*jitcache
kernel: k
name_expression: "k<{T}, {N}>"
arch: portable
state: per_variant
options: [--use_fast_math, -DX=1]
include: [inc]
parameters:
  - {name: T, type: type, values: [float, "unsigned int"], default: float}
  - {name: N, dispatch: [{when: "n <= 0x40 && mode == fast", value: 1}, {value: 4}]}
  - {name: mode, type: enum, values: [slow, fast], default: fast}
  - {name: flag, type: bool, default: true}
fallback: {N: 1}
arguments:
  - {name: p, type: const bf16*, facets: [null, {align: 128}]}
  - {name: n, type: i32, range: [1, 8192], do_not_specialize: alignment}
  - {name: m, type: i64, derive: "ceildiv(n, N) % 3 - min(n, 4)", facets: []}
  - {name: h, type: u8, typical: 16, do_not_specialize: true}
  - {name: s, type: "bytes[64]"}
launch: {grid: [m, h], block: 128, cluster: [2], shared: N * 1024, programmatic: flag}
*/
JC_FACT(n); JC_FACT(p);
