// SPDX-License-Identifier: BSD-3-Clause
#include "objects/npy.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>

#include "unit/objects/arrays.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

using objects::checked;
using objects::header_of;
using objects::parse_header;

namespace {

/// A file with this dictionary, in this version of the format.
std::string with_text(const std::string& text, char version = 1) {
  std::string file = "\x93NUMPY";
  file += version;
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    file += static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  return file + text;
}

int error_of(const std::string& file) {
  const auto header = parse_header(file);
  return header ? 0 : header.error().code;
}

const std::string good = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }";

}  // namespace

TEST_CASE("a header has NumPy's bytes", "[objects]") {
  const auto shape = checked(array_of("<f8", {3, 4}));
  REQUIRE(shape);
  // numpy.lib.format.write_array_header_1_0, NumPy 1.26 and 2
  const std::string expected = with_text(good + std::string(118 - good.size() - 1, ' ') + '\n');
  CHECK(header_of(*shape) == expected);
  CHECK(expected.size() == 128);
  const auto scalar = checked(array_of("|b1", {}));
  CHECK(header_of(*scalar).find("'shape': (), }") != std::string::npos);
  const auto row = checked(array_of("<c16", {5}, EO_FORTRAN_ORDER));
  CHECK(header_of(*row).find("'fortran_order': True, 'shape': (5,), }") != std::string::npos);
}

TEST_CASE("a header is parsed as it was written", "[objects]") {
  for (const auto* dtype : {"|b1", "|i1", "<i2", "<i4", ">i8", "|u1", "<u2", ">u4", "<u8", "<f2",
                            "<f4", "<f8", "<f16", "<c8", ">c16", "<c32"}) {
    for (const int order : {EO_C_ORDER, EO_FORTRAN_ORDER}) {
      eo_array array = array_of(dtype, {}, order);
      for (array.ndim = 0; array.ndim <= EO_MAX_NDIM; ++array.ndim) {
        const auto shape = checked(array);
        REQUIRE(shape);
        const std::string header = header_of(*shape);
        CHECK(header.size() % 64 == 0);
        const auto parsed = parse_header(header);
        REQUIRE(parsed);
        CHECK(parsed->offset == header.size());
        CHECK(parsed->shape.dtype == dtype);
        CHECK(parsed->shape.fortran == (order == EO_FORTRAN_ORDER));
        CHECK(parsed->shape.ndim == array.ndim);
        CHECK(parsed->shape.bytes == shape->bytes);
        if (array.ndim < EO_MAX_NDIM) {
          array.shape[array.ndim] = array.ndim % 2 + 1;
        }
      }
    }
  }
}

TEST_CASE("headers of other writers are read", "[objects]") {
  for (const char version : {1, 2, 3}) {
    CHECK(error_of(with_text(good + "   \n", version)) == 0);
  }
  CHECK(error_of(with_text(R"({"shape":(3,),"fortran_order":True,"descr":"<f4"})")) == 0);
  CHECK(error_of(with_text("{'descr': '<u1', 'fortran_order': False, 'shape': ()}")) == 0);
  CHECK(parse_header(with_text("{'descr': '<u1', 'fortran_order': False, 'shape': ()}"))
            ->shape.dtype == "|u1");
}

TEST_CASE("hostile headers are errors", "[objects]") {
  struct Case {
    std::string descr, order, shape;
    int error;
  };

  for (const Case& one : std::initializer_list<Case>{
           {"'<f8'", "False", "(3, 4)", 0},
           {"'<f8'", "False", "(0, 4)", 0},
           {"'<f8'", "False", "(18446744073709551615,)", EBADMSG},
           {"'<f8'", "False", "(18446744073709551616,)", EBADMSG},
           {"'<f8'", "False", "(4294967296, 4294967296)", EBADMSG},
           {"'<f8'", "False", "(0, 9223372036854775807, 4)", EBADMSG},
           {"'|u1'", "False", "(9223372036854775807,)", EBADMSG},
           {"'<f8'", "False", "(3)", EBADMSG},
           {"'<f8'", "False", "(-3,)", EBADMSG},
           {"'<f8'", "False", "(3 4)", EBADMSG},
           {"'<f8'", "False", "(3,,4)", EBADMSG},
           {"'<f8'", "False", "(,)", EBADMSG},
           {"'<f8'", "False", "(03,)", EBADMSG},
           {"'<f8'", "False", "(3.0,)", EBADMSG},
           {"'<f8'", "False", "(3L,)", EBADMSG},
           {"'<f8'", "False", "(True,)", EBADMSG},
           {"'<f8'", "False", "[3, 4]", EBADMSG},
           {"'<f8'", "False", "(3, 4", EBADMSG},
           {"'<f8'", "False", "((3,), 4)", EBADMSG},
           {"'<f8'", "0", "(3, 4)", EBADMSG},
           {"'<f8'", "Falsey", "(3, 4)", EBADMSG},
           {"'<f8'", "'False'", "(3, 4)", EBADMSG},
           {"'<f8", "False", "(3, 4)", ENOTSUP},
           {"'<f\\x38'", "False", "(3, 4)", EBADMSG},
           {"8", "False", "(3, 4)", EBADMSG},
           {"None", "False", "(3, 4)", EBADMSG},
           {"''", "False", "(3, 4)", ENOTSUP},
           {"'<'", "False", "(3, 4)", ENOTSUP},
           {"'f8'", "False", "(3, 4)", ENOTSUP},
           {"'=f8'", "False", "(3, 4)", ENOTSUP},
           {"'|f8'", "False", "(3, 4)", ENOTSUP},
           {"'<f3'", "False", "(3, 4)", ENOTSUP},
           {"'<f08'", "False", "(3, 4)", ENOTSUP},
           {"'<f8 '", "False", "(3, 4)", ENOTSUP},
           {"'|O'", "False", "(3, 4)", ENOTSUP},
           {"'|V16'", "False", "(3, 4)", ENOTSUP},
           {"'<U5'", "False", "(3, 4)", ENOTSUP},
           {"'<M8[ns]'", "False", "(3, 4)", ENOTSUP},
           {"[('a', '<f8')]", "False", "(3, 4)", ENOTSUP},
           {"('<f8', (2,))", "False", "(3, 4)", ENOTSUP},
       }) {
    std::string text = "{'descr': ";
    text.append(one.descr).append(", 'fortran_order': ").append(one.order);
    text.append(", 'shape': ").append(one.shape).append("}");
    INFO(text);
    CHECK(error_of(with_text(text)) == one.error);
  }
}

TEST_CASE("hostile dictionaries and preambles are errors", "[objects]") {
  const std::string rest = "'fortran_order': False, 'shape': (3,)";
  for (const std::string& text : {
           std::string(),
           std::string("{"),
           std::string("{}"),
           std::string("{,}"),
           good.substr(0, good.size() - 1),
           good + "x",
           good + good,
           " " + good.substr(1),
           "{'descr': '<f8', 'descr': '<f8', " + rest + "}",
           "{'descr': '<f8', 'other': 1, " + rest + "}",
           "{'descr' '<f8', " + rest + "}",
           "{descr: '<f8', " + rest + "}",
           "{" + rest + "}",
           "{'descr': '<f8' " + rest + "}",
           "{'descr': '<f8',, " + rest + "}",
           "{'descr': '<f8', " + rest + "};import os",
           std::string("{'descr\0': '<f8', ", 17) + rest + "}",
           std::string(9999, ' '),
       }) {
    INFO(text);
    CHECK(error_of(with_text(text)) == EBADMSG);
  }
  CHECK(error_of("") == EBADMSG);
  CHECK(error_of("\x93NUMPY") == EBADMSG);
  CHECK(error_of("\x93NUMPX\x01" + with_text(good).substr(7)) == EBADMSG);
  CHECK(error_of(with_text(good, 0)) == ENOTSUP);
  CHECK(error_of(with_text(good, 4)) == ENOTSUP);
  CHECK(error_of(with_text(good + std::string(10000, ' '))) == EBADMSG);
  CHECK(error_of(with_text(good, 2).replace(8, 4, "\xff\xff\xff\xff")) == EBADMSG);
  for (std::size_t length = 0; length < with_text(good).size(); ++length) {
    CHECK(error_of(with_text(good).substr(0, length)) == EBADMSG);
  }
  std::string deep = "{'descr': '<f8', 'fortran_order': False, 'shape': (";
  for (int i = 0; i <= EO_MAX_NDIM; ++i) {
    deep += "1, ";
  }
  CHECK(error_of(with_text(deep + ")}")) == ENOTSUP);
}

TEST_CASE("mutated headers are errors or valid, never worse", "[objects]") {
  const auto with_seed = seed();
  INFO("seed " << with_seed);
  std::mt19937_64 random(with_seed);
  const std::string alphabet = "{}()[],:'\"<>|=0123456789fiuOVbc \n\\-Lx" + std::string(1, '\0');
  for (int round = 0; round < 20000; ++round) {
    std::string file = with_text(good + "     \n", static_cast<char>(1 + round % 3));
    for (std::uint64_t change = 0; change < 1 + random() % 4; ++change) {
      const std::size_t at = random() % file.size();
      const char byte = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0: file[at] = byte; break;
        case 1: file.insert(at, 1, byte); break;
        case 2: file.erase(at, 1 + random() % 3); break;
        default: file[at] = static_cast<char>(random()); break;
      }
      if (file.empty()) {
        break;
      }
    }
    const auto header = parse_header(file);
    if (header) {
      CHECK(header->offset <= file.size());
      CHECK(header->shape.item > 0);
      CHECK(header->shape.bytes % header->shape.item == 0);
    } else {
      CHECK((header.error().code == EBADMSG || header.error().code == ENOTSUP));
      CHECK_FALSE(header.error().reason.empty());
    }
  }
}

TEST_CASE("the caller's description is validated", "[objects]") {
  const auto code = [](const eo_array& array) {
    const auto shape = checked(array);
    return shape ? 0 : shape.error().code;
  };
  CHECK(code(array_of("<f8", {1, 2, 3})) == 0);
  for (const auto* dtype : {"", "f8", "double", "=f8", "|f8", "|O", "<U4", "<f16x", "<f8\n"}) {
    CHECK(code(array_of(dtype, {1})) == EINVAL);
  }
  eo_array array = array_of("<f8", {1});
  std::memset(array.dtype, '<', sizeof array.dtype);
  CHECK(code(array) == EINVAL);
  for (const int ndim : {-1, EO_MAX_NDIM + 1}) {
    array = array_of("<f8", {1});
    array.ndim = ndim;
    CHECK(code(array) == EINVAL);
  }
  array = array_of("<f8", {1}, 2);
  CHECK(code(array) == EINVAL);
  CHECK(code(array_of("<f8", {UINT64_MAX})) == EOVERFLOW);
  CHECK(code(array_of("<f8", {0, UINT64_MAX})) == EOVERFLOW);
  CHECK(code(array_of("|u1", {1ULL << 32U, 1ULL << 32U})) == EOVERFLOW);
}

}  // namespace efs::objects_test
