/*jitcache
kernel: k
arguments: [{name: "n", type: 'i32'}]
*/
int x;
