/*jitcache
kernel: k
arguments: [{name: t, type: tensormap, tensormap: {base: p}}]
*/
