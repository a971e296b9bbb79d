/*jitcache
kernel: k
options: [[[[[[[[[a]]]]]]]]]
x: &a *b
---
*/
