/*jitcache
kernel: k
arguments:
  - {name: n, type: i32, derive: "2 */ 1"}
*/
/*jitcache */
