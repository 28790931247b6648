#pragma once
// mbarriers (8 bytes of shared memory each, by 32-bit shared address), rings of them, clusters, fences (9.7.13).
#include <cstdint>

__device__ __forceinline__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// Dynamic shared memory from a multiple of 1024 on, the period of the 128-byte swizzle; ask for 1024 bytes more.
__device__ __forceinline__ uint32_t aligned_shared(const void* raw) { return (shared_address(raw) + 1023) & ~1023u; }

// `count`: arrivals that end a phase. One thread inits, then `barrier_fence`, then __syncthreads or cluster_sync.
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Arrives once, and adds `bytes` that copies will bring to what the phase waits for.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Until the phase of this parity is complete: 0 is the first one. A fresh barrier lets parity 1 pass at once.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n"
      "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra again;\n\t}" ::"r"(barrier), "r"(parity)
      : "memory");
}

// Arrives on the barrier at the same offset in CTA `rank` of the cluster.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n\t.reg .b32 remote;\n\tmapa.shared::cluster.u32 remote, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}" ::"r"(barrier), "r"(rank)
      : "memory");
}

// The two that hand ordinary stores to another CTA of the cluster: release there, acquire here.
__device__ __forceinline__ void barrier_release_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n\t.reg .b32 remote;\n\tmapa.shared::cluster.u32 remote, %0, %1;\n\t"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n\t}" ::"r"(barrier), "r"(rank)
      : "memory");
}
__device__ __forceinline__ void barrier_acquire(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n"
      "again:\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra again;\n\t}" ::"r"(barrier), "r"(parity)
      : "memory");
}

// A place in a ring, and the parity of its round: consumers wait for `parity`, producers for `parity ^ 1`.
template <int kSize>
struct Ring {
  int place = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++place == kSize) place = 0, parity ^= 1;
  }
};

// Own writes to shared memory, before TMA, wgmma or tcgen05 reads them: each writer calls this, then a barrier.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// The same for all memory, e.g. global memory that a later bulk copy reads.
__device__ __forceinline__ void fence_async_all() { asm volatile("fence.proxy.async;" ::: "memory"); }

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all CTAs of the cluster. Also before a CTA returns while others may still reach into it.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address in CTA `rank` of what lies at `address` here; for ld and st with .shared::cluster.
__device__ __forceinline__ uint32_t map_to_rank(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// Counters in global memory: add with release, wait with acquire. Bulk copies that follow need `fence_async_all`.
__device__ __forceinline__ void counter_add(unsigned* counter, unsigned n) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(n) : "memory");
}
__device__ __forceinline__ void counter_wait(const unsigned* counter, unsigned target) {
  unsigned seen = 0;
  while (seen < target) {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  }
}
