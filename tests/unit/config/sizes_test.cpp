// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <limits>
#include <string>

#include "config/load.hpp"

using efs::config::parse_memory;
using efs::config::parse_rate;
using efs::config::parse_size;
using efs::config::parse_time;

TEST_CASE("binary and decimal units") {
  CHECK(parse_size("4096") == 4096u);
  CHECK(parse_size("1B") == 1u);
  CHECK(parse_size("2 GiB") == 2ull << 30);
  CHECK(parse_size("2GiB") == 2ull << 30);
  CHECK(parse_size("128KiB") == 128u << 10);
  CHECK(parse_size("3 MiB") == 3u << 20);
  CHECK(parse_size("4TiB") == 4ull << 40);
  CHECK(parse_size("1PiB") == 1ull << 50);
  CHECK(parse_size("1KB") == 1'000u);
  CHECK(parse_size("100 MB") == 100'000'000u);
  CHECK(parse_size("1GB") == 1'000'000'000u);
  CHECK(parse_size("1 TB") == 1'000'000'000'000u);
  CHECK(parse_size("1PB") == 1'000'000'000'000'000u);
}

TEST_CASE("single letters are decimal, as in the ancestor") {
  CHECK(parse_size("1K") == 1'000u);
  CHECK(parse_size("1M") == 1'000'000u);
  CHECK(parse_size("1G") == 1'000'000'000u);
  CHECK(parse_size("1T") == 1'000'000'000'000u);
  CHECK(parse_size("1P") == 1'000'000'000'000'000u);
}

TEST_CASE("capitals and blanks do not matter") {
  CHECK(parse_size(" 2 gib ") == 2ull << 30);
  CHECK(parse_size("2\tmb") == 2'000'000u);
}

TEST_CASE("decimals are exact") {
  CHECK(parse_size("3.5 TB") == 3'500'000'000'000u);
  CHECK(parse_size("3.5TB") == 3'500'000'000'000u);
  CHECK(parse_size("0.5GiB") == 512u << 20);
  CHECK(parse_size("1.1 PB") == 1'100'000'000'000'000u);
  CHECK(parse_size("0.3 KiB") == 307u);  // whole bytes
}

TEST_CASE("sizes have 64 bits") {
  CHECK(parse_size("5 GiB") == 5ull << 30);
  CHECK(parse_size("18446744073709551615") == std::numeric_limits<std::uint64_t>::max());
  CHECK(parse_size("16383 PiB") == 16383ull << 50);
  CHECK_FALSE(parse_size("18446744073709551616"));
  CHECK_FALSE(parse_size("16384 PiB"));
  CHECK_FALSE(parse_size("99999999999999999999999999999999999999999 PiB"));
}

TEST_CASE("every suffix, in any case") {
  for (const std::string unit : {"k", "K", "KB", "kB", "kb"}) {
    CHECK(parse_size("1.5 " + unit) == 1'500u);
  }
  for (const std::string unit : {"KiB", "kib", "KIB"}) {
    CHECK(parse_size("1.5" + unit) == 1'536u);
  }
  CHECK(parse_size("1.5 GiB") == 3ull << 29);
  CHECK(parse_size("2E") == 2'000'000'000'000'000'000u);
  CHECK(parse_size("1.5 EB") == 1'500'000'000'000'000'000u);
  CHECK(parse_size("2 EiB") == 2ull << 60);
  CHECK_FALSE(parse_size("16 EiB"));
}

TEST_CASE("rates") {
  CHECK(parse_rate("500MB/s") == 500'000'000u);
  CHECK(parse_rate("1.5 GiB/s") == 3ull << 29);
  CHECK(parse_rate(" 1.5 GiB /s ") == 3ull << 29);
  CHECK(parse_rate("4096") == 4096u);
  CHECK(parse_rate("2 k") == 2'000u);
  for (const std::string text : {"", "/s", "500 Mbit/s", "500MB/m", "MB/s", "1/s/s", "500MB/s x"}) {
    INFO(text);
    CHECK_FALSE(parse_rate(text));
  }
}

TEST_CASE("memory as sbatch has it") {
  for (const std::string text : {"500", "500M", "500m", " 500 MiB "}) {
    CHECK(parse_memory(text) == 500u << 20);
  }
  CHECK(parse_memory("4G") == 4ull << 30);
  CHECK(parse_memory("512K") == 512u << 10);
  CHECK(parse_memory("500 MB") == 500'000'000u);
  for (const std::string text : {"", "M", "lots", "-5", "5X"}) {
    CHECK_FALSE(parse_memory(text));
  }
}

TEST_CASE("what is not a size") {
  for (const std::string text : {"",        " ",      "GiB",   "-1",     "+1",
                                 "-2 GiB",  "1.5",    "1.5 B", "1.",     ".5 GiB",
                                 "1..5 GB", "1,5 GB", "2 Gi",  "2 ZiB",  "2 GiB/s",
                                 "1e9",     "0x10",   "1 2",   "2 GiB!", "1.0000000000000001 GB",
                                 "all",     "inf",    "nan"}) {
    INFO(text);
    CHECK_FALSE(parse_size(text));
  }
}

TEST_CASE("times have a unit") {
  using std::chrono::seconds;
  CHECK(parse_time("30 s") == seconds(30));
  CHECK(parse_time("10min") == seconds(600));
  CHECK(parse_time(" 2 h ") == seconds(7200));
  CHECK(parse_time("1 d") == seconds(86400));
  for (const char* const bad :
       {"", "10", "min", "-1 s", "1.5 h", "10 m", "10 minutes", "9999999999 s", "1 s s", "1\0s"}) {
    CHECK_FALSE(parse_time(bad));
  }
}
