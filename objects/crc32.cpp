// SPDX-License-Identifier: BSD-3-Clause
#include "objects/crc32.hpp"

#include <array>
#include <bit>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace efs::objects {

namespace {

constexpr std::uint32_t polynomial = 0xedb88320U;
constexpr std::size_t slices = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, slices>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1U ^ ((crc & 1U) != 0 ? polynomial : 0);
    }
    tables[0][byte] = crc;
  }
  for (std::size_t slice = 1; slice < slices; ++slice) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[slice - 1][byte];
      tables[slice][byte] = crc >> 8U ^ tables[0][crc & 0xffU];
    }
  }
  return tables;
}

constexpr Tables tables = make_tables();

#ifdef __x86_64__

/// A vector of 16 bytes.
__m128i at(const char* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

/// Multiplies a vector by the powers of x that move it over the distance of the constants.
__attribute__((target("pclmul,sse4.1"))) __m128i folded(__m128i vector, __m128i constants,
                                                        __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(vector, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(vector, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/// Reduces a vector to the CRC of its bytes: first to 64 bits, then by Barrett's method.
__attribute__((target("pclmul,sse4.1"))) std::uint32_t reduced(__m128i vector) {
  const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
  const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
  const __m128i by_96 = _mm_set_epi64x(0x00ccaa009e, 0);
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
  __m128i rest =
      _mm_xor_si128(_mm_srli_si128(vector, 8), _mm_clmulepi64_si128(vector, by_96, 0x10));
  rest = _mm_xor_si128(_mm_srli_si128(rest, 4),
                       _mm_clmulepi64_si128(_mm_and_si128(rest, low_words), by_64, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(rest, low_words), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), barrett, 0x00);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(rest, quotient), 1));
}

/// CRC-32 by carry-less multiplication, of a multiple of 16 bytes and at least 64. After Gopal et
/// al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction (Intel, 2009).
__attribute__((target("pclmul,sse4.1"))) std::uint32_t by_multiplication(std::uint32_t crc,
                                                                         const char* bytes,
                                                                         std::size_t size) {
  const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  __m128i lane[4];
  for (int i = 0; i < 4; ++i) {
    lane[i] = at(bytes + 16 * i);
  }
  lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128(static_cast<int>(crc)));
  for (bytes += 64, size -= 64; size >= 64; bytes += 64, size -= 64) {
    for (int i = 0; i < 4; ++i) {
      lane[i] = folded(lane[i], by_512, at(bytes + 16 * i));
    }
  }
  __m128i all = lane[0];
  for (int i = 1; i < 4; ++i) {
    all = folded(all, by_128, lane[i]);
  }
  for (; size >= 16; bytes += 16, size -= 16) {
    all = folded(all, by_128, at(bytes));
  }
  return reduced(all);
}

bool can_multiply() {
  static const bool can = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  return can;
}

#endif

}  // namespace

std::uint32_t crc32_plain(std::uint32_t before, const char* bytes, std::size_t size) {
  std::uint32_t crc = ~before;
  for (; std::endian::native == std::endian::little && size >= slices;
       bytes += slices, size -= slices) {
    std::uint32_t word[2];
    std::memcpy(word, bytes, sizeof word);
    word[0] ^= crc;
    crc = 0;
    for (unsigned i = 0; i < 4; ++i) {
      crc ^= tables[7 - i][word[0] >> 8 * i & 0xffU] ^ tables[3 - i][word[1] >> 8 * i & 0xffU];
    }
  }
  for (; size > 0; ++bytes, --size) {
    crc = crc >> 8U ^ tables[0][(crc ^ static_cast<unsigned char>(*bytes)) & 0xffU];
  }
  return ~crc;
}

std::uint32_t crc32(std::uint32_t before, const char* bytes, std::size_t size) {
#ifdef __x86_64__
  if (size >= 64 && can_multiply()) {
    const std::size_t whole = size / 16 * 16;
    before = ~by_multiplication(~before, bytes, whole);
    bytes += whole;
    size -= whole;
  }
#endif
  return crc32_plain(before, bytes, size);
}

}  // namespace efs::objects
