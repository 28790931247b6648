// Probe: a kernel with a known number of executed wgmma, one with wgmma in a never-taken branch, one mma.sync, one with out-of-bounds write.
#include <cstdio>
#include <cstdint>
#include <cuda_bf16.h>
#define WG(d) asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n" \
 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, 0, 0;\n}\n" \
 : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]) : "l"(desc), "l"(desc))
__device__ uint64_t mk(const void* p){ uint32_t a=(uint32_t)__cvta_generic_to_shared(p); return (uint64_t)((a&0x3FFFF)>>4) | ((uint64_t)8<<16) | ((uint64_t)16<<32); }
__global__ void known_hgmma(float* out, int loops){
  __shared__ __align__(1024) __nv_bfloat16 s[64*16*2];
  for(int i=threadIdx.x;i<2048;i+=blockDim.x) s[i]=__float2bfloat16(0.01f*i);
  asm volatile("fence.proxy.async;"); __syncthreads();
  float d[8]={0,0,0,0,0,0,0,0}; uint64_t desc=mk(s);
  for(int i=0;i<loops;i++){ asm volatile("wgmma.fence.sync.aligned;"); WG(d); asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"); }
  out[blockIdx.x*blockDim.x+threadIdx.x]=d[0]+d[1]+d[2]+d[3]+d[4]+d[5]+d[6]+d[7];
}
__global__ void dead_branch(float* out, int never){
  __shared__ __align__(1024) __nv_bfloat16 s[64*16*2];
  for(int i=threadIdx.x;i<2048;i+=blockDim.x) s[i]=__float2bfloat16(0.01f*i);
  __syncthreads(); float d[8]={0,0,0,0,0,0,0,0};
  if(never){ uint64_t desc=mk(s); asm volatile("wgmma.fence.sync.aligned;"); WG(d); asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"); }
  out[threadIdx.x]=d[0]+threadIdx.x;
}
__global__ void oob(float* out, int n){ out[n+threadIdx.x]=1.f; }
__global__ void spin(long long ns){ long long t0; asm volatile("mov.u64 %0, %globaltimer;":"=l"(t0)); long long t; do { asm volatile("mov.u64 %0, %globaltimer;":"=l"(t)); } while(t-t0<ns); }
int main(int c,char**v){
  float* o; cudaMalloc(&o, 1<<20);
  bool bad = c>1;
  known_hgmma<<<4,128>>>(o,100); dead_branch<<<1,128>>>(o,0); spin<<<1,1>>>(1000000);
  if(bad){ float* p; cudaMalloc(&p, 1024); oob<<<1,32>>>(p,256); }
  cudaError_t e=cudaDeviceSynchronize(); printf("%s\n", cudaGetErrorString(e)); return e!=cudaSuccess; }
