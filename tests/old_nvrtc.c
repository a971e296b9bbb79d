// A library that says it is the NVRTC of CUDA 11.8, which is too old.

__attribute__((visibility("default"))) int nvrtcVersion(int *major, int *minor);
__attribute__((visibility("default"))) int nvrtcVersion(int *major, int *minor)
{
    *major = 11;
    *minor = 8;
    return 0;
}
