// SPDX-License-Identifier: BSD-3-Clause
#include "intercept/copy.hpp"

// A leaf without a frame: at each of its instructions the return address is on top of the stack,
// so that a handler may go on at efs_intercept_copy_fault. Short runs use overlapping moves, long
// ones `rep movsb`, which is the fastest copy of this size where a processor has ERMS (Intel,
// Optimization Reference Manual, 3.7.6).
asm(R"(
  .text
  .p2align 5
  .local efs_intercept_copy
  .type efs_intercept_copy, @function
efs_intercept_copy:
  .cfi_startproc
  cmpq $16, %rdx
  jb 3f
  cmpq $1024, %rdx
  jae 2f
  movups -16(%rsi,%rdx), %xmm1
1:
  cmpq $64, %rdx
  jb 5f
  movups (%rsi), %xmm2
  movups 16(%rsi), %xmm3
  movups 32(%rsi), %xmm4
  movups 48(%rsi), %xmm5
  movups %xmm2, (%rdi)
  movups %xmm3, 16(%rdi)
  movups %xmm4, 32(%rdi)
  movups %xmm5, 48(%rdi)
  addq $64, %rsi
  addq $64, %rdi
  subq $64, %rdx
  jmp 1b
5:
  cmpq $16, %rdx
  jb 6f
  movups (%rsi), %xmm2
  movups %xmm2, (%rdi)
  addq $16, %rsi
  addq $16, %rdi
  subq $16, %rdx
  jmp 5b
6:
  movups %xmm1, -16(%rdi,%rdx)
  xorl %eax, %eax
  ret
2:
  movq %rdx, %rcx
  rep movsb
  xorl %eax, %eax
  ret
3:
  cmpq $8, %rdx
  jb 4f
  movq (%rsi), %rax
  movq -8(%rsi,%rdx), %rcx
  movq %rax, (%rdi)
  movq %rcx, -8(%rdi,%rdx)
  xorl %eax, %eax
  ret
4:
  movq %rdx, %rcx
  rep movsb
  xorl %eax, %eax
  ret
  .local efs_intercept_copy_fault
efs_intercept_copy_fault:
  movl $1, %eax
  ret
  .cfi_endproc
  .size efs_intercept_copy, . - efs_intercept_copy
)");

extern "C" {
#pragma GCC visibility push(hidden)
extern const char efs_intercept_copy_begin[] asm("efs_intercept_copy");
extern const char efs_intercept_copy_fault[];
int efs_intercept_copy(void* to, const void* from, std::size_t bytes);
#pragma GCC visibility pop
}

namespace efs::intercept {

bool copy(void* to, const void* from, std::size_t bytes) {
  return efs_intercept_copy(to, from, bytes) == 0;
}

std::uintptr_t after_fault(std::uintptr_t instruction) {
  const auto begin = reinterpret_cast<std::uintptr_t>(efs_intercept_copy_begin);
  const auto end = reinterpret_cast<std::uintptr_t>(efs_intercept_copy_fault);
  return instruction >= begin && instruction < end ? end : 0;
}

}  // namespace efs::intercept
