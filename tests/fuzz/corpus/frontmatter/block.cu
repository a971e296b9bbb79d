// A copyright line
/*jitcache
# YAML in block style
kernel: fused
parameters:
  - name: format
    type: enum
    values:
      - fp32
      - ue8m0
arguments:
  - name: n
    type: i32
    range: 1:100
  - name: s
    type: i64
    derive: n * (1 + 3 * (format == fp32))
    facets:
      - one
      - div: 16
      - div: 8
launch:
  grid:
    - s / 4
*/
const char *s = R"(*/)"; // */
JC_FACT(s)
