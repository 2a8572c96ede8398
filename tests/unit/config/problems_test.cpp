// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <string>
#include <vector>

#include "config/load.hpp"
#include "support/failing_new.hpp"

using namespace efs::config;
namespace test = efs::test;

namespace {

std::vector<Problem> problems_of(const std::string& text, const Overrides& overrides = {}) {
  auto config = parse(text, "job.yaml", overrides);
  REQUIRE_FALSE(config.has_value());
  for (const auto& problem : config.error()) {
    UNSCOPED_INFO(to_string(problem, "job.yaml"));
  }
  return config.error();
}

// the column comes from the YAML library and differs between its versions
constexpr int any = -1;

// Checks that `text` has exactly one problem at this position, whose text and suggestion contain
// these words.
void check_one(const std::string& text, int line, int column, const std::string& words,
               const std::string& suggestion = "") {
  const auto problems = problems_of(text);
  INFO(text << "\n" << to_string(problems[0], "job.yaml"));
  CHECK(problems.size() == 1);
  CHECK(problems[0].line == line);
  if (column != any) {
    CHECK(problems[0].column == column);
  }
  CHECK(problems[0].text.contains(words));
  CHECK(problems[0].suggestion.contains(suggestion));
}

// The same for a job file with correct settings that continues with `rest` from line 5.
void check_rest(const std::string& rest, int line, int column, const std::string& words,
                const std::string& suggestion = "") {
  check_one("global-settings:\n  root-dir: /r\n  mount-dir: /m\n  results-dir: /o\n" + rest, line,
            column, words, suggestion);
}

// The same for an additional setting in line 5: "  KEY: VALUE", whose value begins in column KEY +
// 5.
void check_setting(const std::string& key, const std::string& value, const std::string& words,
                   const std::string& suggestion = "") {
  check_rest("  " + key + ": " + value + "\n", 5, static_cast<int>(key.size()) + 5, words,
             suggestion);
}

// The same for an additional key of a backend of type DRAM.
void check_backend(const std::string& key, const std::string& value, const std::string& words,
                   const std::string& suggestion = "") {
  check_rest("backends:\n  - id: d\n    " + key + ": " + value + "\n", 7,
             static_cast<int>(key.size()) + 7, words, suggestion);
}

}  // namespace

TEST_CASE("messages name file, place, problem and way out") {
  CHECK(to_string({3, 7, "bad", "do this"}, "j.yaml") == "j.yaml:3:7: bad (do this)");
  CHECK(to_string({3, 7, "bad", ""}, "j.yaml") == "j.yaml:3:7: bad");
  CHECK(to_string({0, 0, "bad", ""}, "j.yaml") == "j.yaml: bad");
}

TEST_CASE("what a message quotes ends no line") {
  check_backend("capacity", R"("2\nGiB\e")", R"('2\012GiB\033' is not a size)");
}

TEST_CASE("unknown keys, with the nearest known one") {
  check_rest("  workes: 3\n", 5, 3, "unknown key 'workes' in global-settings", "'workers'");
  check_rest("  result-dir: /x\n", 5, 3, "'result-dir'", "'results-dir'");
  check_rest("ressources: []\n", 5, 1, "'ressources' in the job file", "'resources'");
  check_rest("backends:\n  - id: d\n    dax_fs: /x\n", 7, 5, "'dax_fs'", "'daxfs'");
  check_rest("resources:\n  - path: a\n    flag: persistent\n", 7, 5, "'flag'", "'flags'");
  check_rest("outputs: [ [ pth: a, path: b ] ]\n", 5, 14, "'pth'", "'path'");
  check_rest("outputs: [ [ path: a, priority: 1 ] ]\n", 5, 23, "'priority'",
             "belongs to resources");
  check_rest("workers: 3\n", 5, 1, "'workers'", "belongs to global-settings");
  check_rest("xyzzy: 3\n", 5, 1, "'xyzzy'", "known here: global-settings");
}

TEST_CASE("unknown and duplicate keys in the ancestor's grammar") {
  check_one("global-settings: [ root-dir: /r,\n mount-dir: /m, results-dir: /o,\n wrokers: 3 ]\n",
            3, 2, "'wrokers'", "'workers'");
  check_one("global-settings: [ root-dir: /r,\n mount-dir: /m, results-dir: /o,\n root-dir: /x ]\n",
            3, 2, "duplicate key 'root-dir'", "line 1");
}

TEST_CASE("duplicate keys") {
  check_rest("  root-dir: /x\n", 5, 3, "duplicate key 'root-dir'", "line 2");
  check_rest("global-settings: {}\n", 5, 1, "duplicate key 'global-settings'", "line 1");
  check_rest("resources:\n  - path: a\n    path: b\n", 7, 5, "duplicate key 'path'", "line 6");
}

TEST_CASE("missing keys name the section and its line") {
  check_one("\nglobal-settings:\n  mount-dir: /m\n  results-dir: /o\n", 2, 1,
            "'root-dir' is missing from global-settings", "root-dir:");
  check_one("\nglobal-settings:\n  root-dir: /m\n  results-dir: /o\n", 2, 1,
            "'mount-dir' is missing from global-settings", "mount-dir:");
  check_rest("backends:\n  - type: DRAM\n", 6, 5, "'id' is missing from this backend");
  check_rest("backends: [ [ id: a, type: NVRAM-NVML ] ]\n", 5, 13,
             "'daxfs' is missing from this backend");
  check_rest("resources:\n  - flags: temporary\n", 6, 5, "'path' is missing from this resource");
  check_rest("outputs:\n  - flags: temporary\n", 6, 5, "'path' is missing from this output rule");
}

TEST_CASE("an empty file misses everything") {
  for (const std::string text : {"", "# nothing\n", "---\n"}) {
    const auto problems = problems_of(text);
    REQUIRE(problems.size() == 3);
    CHECK(problems[0].line == 1);
    CHECK(problems[0].text.contains("'root-dir' is missing"));
    CHECK(problems[1].text.contains("'mount-dir' is missing"));
    CHECK(problems[2].text.contains("'results-dir' is missing"));
  }
}

TEST_CASE("values of the wrong shape") {
  check_rest("  name:\n  workers: 2\n", 5, 3, "'name' has no value");
  check_rest("  name: ''\n", 5, 3, "'name' has no value");
  check_rest("  log-file: [a, b]\n", 5, 13, "'log-file' must be one value");
  check_rest("resources: a\n", 5, 12, "'resources' must be a list");
  check_rest("resources:\n  - input/\n", 6, 5, "must hold KEY: VALUE pairs, not 'input/'",
             "path: \"input/\"");
  check_rest("resources: [ [ input ] ]\n", 5, 16,
             "this resource must hold KEY: VALUE pairs, not 'input'");
  check_rest("? [a]\n: b\n", 5, 3, "a key must be a word");
  check_one("just words\n", 1, 1, "the job file must hold KEY: VALUE pairs");
  check_one("global-settings: /r\n", 1, 18, "global-settings must hold KEY: VALUE pairs");
  check_one("global-settings:\n  - root-dir:/r\n", 2, 5, "KEY: VALUE", "space");
}

TEST_CASE("bad numbers, words and sizes") {
  for (const std::string value : {"0", "257", "-1", "3.5", "many", "8x", "99999999999999999999"}) {
    check_setting("workers", value, "'workers' is '" + value, "1 to 256");
  }
  for (const std::string value : {"-1", "604801", "soon"}) {
    check_setting("deadline", value, "'deadline' is '" + value, "0 to 604800");
  }
  for (const std::string value : {"-1", "101", "often"}) {
    check_setting("retries", value, "'retries' is '" + value, "0 to 100");
  }
  for (const std::string value : {"0", "-5", "2000/min", "0/s"}) {
    check_setting("max-ops", value, "'max-ops' is '", "a whole number");
  }
  check_setting("max-rate", "fast", "'fast' is not a size", "GiB");
  check_setting("max-rate", "1 KB/s", "out of range", "at least 64 KiB");
  check_setting("on-conflict", "keepboth", "'keepboth' is not a value of 'on-conflict'",
                "'keep-both'");
  check_setting("existing", "overwrite", "'overwrite' is not a value of 'existing'",
                "replace, fail, keep-both");
  for (const char* mode : {"0777", "0200", "rw", "8"}) {
    check_setting("results-mode", mode, "'results-mode' is", "0660");
  }
  check_setting("on-conflict", "ask", "'ask' is not a value of 'on-conflict'",
                "fail, keep-both, overwrite");
  check_setting("verify", "readback", "'readback' is not a value of 'verify'", "'read-back'");
  check_setting("in-place", "maybe", "'maybe' is not a value of 'in-place'", "true, false");
  check_setting("in-place", "tru", "'tru'", "'true'");
  check_setting("transfer-size", "1 KiB", "out of range", "64 KiB to 64 MiB");
  check_setting("transfer-size", "65 MiB", "out of range", "64 KiB to 64 MiB");
  check_setting("transfer-size", "fast", "'fast' is not a size", "GiB");
  check_backend("capacity", "0", "out of range", "at least 16 MiB");
  check_backend("capacity", "16383 KiB", "out of range", "at least 16 MiB");
  check_backend("capacity", "-2 GiB", "'-2 GiB' is not a size");
  check_backend("capacity", "99999 PiB", "is not a size that 'capacity' can have");
  check_backend("capacity", "2 GiBB", "'2 GiBB'", "\"2 GiB\"");
  check_backend("segment-size", "60 KiB", "out of range", "64 KiB to 4 GiB");
  check_backend("segment-size", "4097 MiB", "out of range", "64 KiB to 4 GiB");
  check_backend("segment-size", "1000001", "not a multiple of 4 KiB");
  check_backend("enforce", "strikt", "'strikt'", "'strict'");
  check_backend("huge", "nevr", "'nevr'", "'never'");
  check_backend("type", "NVRAM-NVMl2", "'NVRAM-NVMl2'", "'NVRAM-NVML'");
  check_backend("type", "floppy", "'floppy'", "DRAM, NVRAM-NVML");
  check_rest("outputs: [ [ path: a, flags: permanent ] ]\n", 5, 30, "'permanent'", "persistent");
  check_rest("resources: [ [ path: a, flags: temporry ] ]\n", 5, 32, "'temporry'", "'temporary'");
}

TEST_CASE("names") {
  for (const std::string value : {".x", "-x", "a/b", "'a b'"}) {
    check_setting("name", value, "'name' is", "for example");
  }
  check_setting("name", std::string(65, 'x'), "'name' is", "1 to 64");
}

TEST_CASE("backends that this version does not have") {
  check_backend("type", "NVRAM-DEVDAX", "'NVRAM-DEVDAX' is not supported yet", "NVRAM-NVML");
  check_backend("type", "NVRAM-DEVDAIX", "'NVRAM-DEVDAIX' is not supported yet");
  check_backend("daxfs", "/mnt/pmem", "'daxfs' has no meaning", "NVRAM-NVML");
  check_backend("require-dax", "true", "'require-dax' has no meaning", "NVRAM-NVML");
}

TEST_CASE("backend ids are unique") {
  const auto problems = problems_of(
      "global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o}\nbackends:\n  - id: a\n  - "
      "id: a\n");
  REQUIRE(problems.size() == 2);
  CHECK(problems[1].text.contains("backend 'a' is defined twice"));
  CHECK(problems[1].line == 4);
  CHECK(problems[1].column == 9);
}

TEST_CASE("several backends that cannot be") {
  check_rest("backends:\n  - id: a\n  - id: b\n", 7, 5,
             "two backends in memory, and not both with a 'capacity'", "give each a capacity");
  check_rest("backends:\n  - { id: 'a:/', capacity: 64 MiB }\n  - { id: 'a:', capacity: 64 MiB }\n",
             7, 11, "backend 'a:' is defined twice", "the first is at line");
  check_rest(
      "backends:\n  - { id: a, type: NVRAM-NVML, daxfs: /pmem }\n  - { id: b, type: NVRAM-NVML, "
      "daxfs: /pmem/ }\n",
      7, 39, "two backends have the directory '/pmem'", "a directory of its own");
  std::string nine = "backends:\n";
  for (int i = 0; i < 9; ++i) {
    nine += "  - { id: b" + std::to_string(i) + ", capacity: 16 MiB }\n";
  }
  check_rest(nine, 14, 5, "more than 8 backends");
  check_setting("new-files", "nosuch", "unknown backend 'nosuch'", "defined here: 'dram'");
  check_setting("on-full", "spil", "'spil'", "'spill'");
  check_rest("outputs: [ [ path: a, backend: nosuch ] ]\n", 5, 32, "unknown backend 'nosuch'",
             "defined here: 'dram'");
}

TEST_CASE("resources that cannot be") {
  check_rest("resources: [ [ path: /x/a ] ]\n", 5, 22, "'/x/a' is not below root-dir '/r'",
             "below root-dir");
  check_rest("resources: [ [ path: /rx ] ]\n", 5, 22, "is not below root-dir");
  check_rest("resources: [ [ path: /r/../x ] ]\n", 5, 22, "is not below root-dir");
  check_rest("resources: [ [ path: a/../../b ] ]\n", 5, 22, "leaves root-dir through '..'");
  check_rest("resources: [ [ path: 'a/*/../b' ] ]\n", 5, 22, "holds '..'");
  check_rest("resources: [ [ path: ~/a ] ]\n", 5, 22, "'~' has no value in 'path'");
  check_rest("resources: [ [ path: $IN/a ] ]\n", 5, 22, "variable IN is not set in 'path'");
  check_rest("resources: [ [ path: in-%j/a ] ]\n", 5, 22,
             "%j has no value: SLURM_JOB_ID is not set");
  check_rest("resources: [ [ path: \"a\\0b\" ] ]\n", 5, 22, "NUL");
  check_rest("resources: [ [ path: a, backend: drm ] ]\n", 5, 34, "unknown backend 'drm'",
             "'dram'");
  check_rest("resources: [ [ path: a, backend: 'nvml:/' ] ]\n", 5, 34, "unknown backend 'nvml:/'",
             "defined here: 'dram'");
  check_rest("resources:\n  - path: a\n  - path: b/../a/\n", 7, 11, "listed twice", "line 6");
}

TEST_CASE("outputs that cannot be") {
  check_rest("outputs: [ [ path: /x/a ] ]\n", 5, 20, "neither below mount-dir nor below root-dir",
             "relative to mount-dir");
  check_rest("outputs: [ [ path: ../a ] ]\n", 5, 20, "leaves the mount point");
}

TEST_CASE("directories within one another") {
  const auto check = [](const std::string& root, const std::string& mount,
                        const std::string& results, int column, const std::string& words) {
    check_one("global-settings: {root-dir: " + root + ", mount-dir: " + mount +
                  ", results-dir: " + results + "}\n",
              1, column, words, "outside");
  };
  check("/r", "/r/m", "/o", 44, "'mount-dir' is inside 'root-dir'");
  check("/r", "/r", "/o", 44, "'mount-dir' is the same as 'root-dir'");
  check("/m/r", "/m", "/o", 29, "'root-dir' is inside 'mount-dir'");
  check("/r", "/m", "/m/o", 61, "'results-dir' is inside 'mount-dir'");
  check("/r", "/m", "/m", 44, "'mount-dir' is the same as 'results-dir'");
  check("/r", "/o/m", "/o", 44, "'mount-dir' is inside 'results-dir'");
  check("/o/r", "/m", "/o", 29, "'root-dir' is inside 'results-dir'");
  const auto check_input = [](const std::string& results, const std::string& resource,
                              const std::string& words) {
    check_one("global-settings: {root-dir: /r, mount-dir: /m, results-dir: " + results +
                  "}\nresources: [ [ path: \"" + resource + "\" ] ]\n",
              1, 61, words, "beside the resources");
  };
  check_input("/r/a", "a", "'results-dir' is the same as the resource '/r/a'");
  check_input("/r/a/b", "a", "'results-dir' is inside the resource '/r/a'");
  check_input("/r/a", "a/b", "'results-dir' holds the resource '/r/a/b'");
  check_input("/r/a", "a/*.dat", "'results-dir' holds the resource '/r/a/*.dat'");
  check_setting("log-file", "/m/log", "'log-file' is inside 'mount-dir'");
  check_rest("backends: [ [ id: a, type: NVRAM-NVML, daxfs: /m/d ] ]\n", 5, 47,
             "'daxfs' is in 'mount-dir'");
}

TEST_CASE("the root of all is no directory for a job") {
  check_one("global-settings: {root-dir: /, mount-dir: /m, results-dir: /o}\n", 1, 29,
            "'root-dir' must not be '/'");
  check_one("global-settings: {root-dir: /.., mount-dir: /m, results-dir: /o}\n", 1, 29,
            "'root-dir' must not be '/'");
  check_one("global-settings: {root-dir: /r, mount-dir: /, results-dir: /o}\n", 1, 44,
            "'mount-dir' must not be '/'");
  check_one("global-settings: {root-dir: /r, mount-dir: /m, results-dir: //}\n", 1, 61,
            "'results-dir' must not be '/'");
  check_one("global-settings: {root-dir: $SCRATCH/x, mount-dir: /m, results-dir: /o}\n", 1, 29,
            "variable SCRATCH is not set");
}

TEST_CASE("results over inputs must be said") {
  check_one("global-settings:\n  root-dir: /r\n  mount-dir: /m\n  results-dir: /r/\n", 4, 16,
            "'results-dir' is the same as 'root-dir'", "in-place: true");
  check_setting("in-place", "true", "'in-place' is true, but 'results-dir' is not 'root-dir'");
}

TEST_CASE("results-dir is needed where anything can be persistent") {
  const std::string settings = "global-settings: {root-dir: /r, mount-dir: /m}\n";
  check_one(settings, 1, 1, "'results-dir' is missing from global-settings: without output rules",
            "in-place: true");
  check_one(settings + "outputs: [ [ path: a ] ]\n", 1, 1, "an output rule is persistent");
  check_one(settings +
                "outputs: [ [ path: a, flags: temporary ] ]\nresources: [ [ path: b, flags: "
                "persistent ] ]\n",
            1, 1, "a resource is persistent");
}

TEST_CASE("all problems at once, in the order of the file") {
  const auto problems = problems_of(R"(resources:
  - path: ../x
    flags: permanent
outptus: []
global-settings:
  root-dir: /r
  workers: 0
  transfer-size: 1
  nmae: x
backends:
  - type: floppy
)");
  std::vector<int> lines;
  for (const auto& problem : problems) {
    lines.push_back(problem.line);
  }
  CHECK(lines == std::vector{2, 3, 4, 5, 5, 7, 8, 9, 11, 11});
}

TEST_CASE("a bad value on the command line has no place in the file") {
  const auto problems =
      problems_of("global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o}\n",
                  {.name = "a/b", .root_dir = "/"});
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].line == 0);
  CHECK(problems[1].line == 0);
}

TEST_CASE("broken YAML is a problem with a place") {
  check_one("global-settings: [ root-dir: /r,\n", 2, any, "not valid YAML", "bracket");
  check_one("global-settings:\n\troot-dir: /r\n", 2, any, "not valid YAML");
  check_one("global-settings:\n  root-dir: /r\n\tmount-dir: /m\n", 3, any, "not valid YAML",
            "spaces");
  check_one("outputs:\n  - path: *.nc\n", 2, any, "", "quote");
  check_one("a: b: c\n", 1, any, "not valid YAML", "space follows each colon");
  check_one("a: \"b\\q\"\n", 1, any, "not valid YAML");
}

TEST_CASE("a quote that the end of the file closes") {
  check_one("a: 1\nb: \"/pfs/ru\n", 2, 4, "never closed", "cut off");
  check_one("a: 1\nb: '/pfs/it''s\n", 2, 4, "never closed");
  check_one("a: 1\nb: \"x\\\"\n", 2, 4, "never closed");
  check_one("a: 1\nb: \"/pfs/ru", 2, any, "not valid YAML", "cut off");
  check_setting("name", "'it''s'", "'it's'");
  check_setting("name", "\"a\\\"b\"", "a\"b");
}

TEST_CASE("aliases, depth, a second document, strange bytes") {
  check_one("a: &x 1\nb: *x\n", 1, 4, "anchors and aliases");
  check_one("a: *x\n", 1, any, "", "quote");
  check_one("a: 1\n---\nb: 2\n", 2, 1, "one YAML document");
  check_one("a: 1\nb: \x04\n", 2, 4, "control character");
  check_one("a: 1\nb: x\xFFy\n", 2, 5, "UTF-8");
  check_one("# \xC3\xA9 \x01\n", 1, 6, "control character");
  const auto deep = problems_of(std::string(100, '['));
  CHECK(deep.size() == 1);
  CHECK(deep[0].text.contains("nested too deeply"));
}

namespace {

std::string repeated(const std::string& piece, std::size_t size) {
  std::string text;
  while (text.size() + piece.size() <= size) {
    text += piece;
  }
  return text;
}

// Returns the growth of the work for a file of four times the size.
double growth(const std::string& piece, std::size_t size) {
  const auto work = [&](std::size_t bytes) {
    const std::string text = repeated(piece, bytes);
    const auto before = test::allocations();
    const auto problems = problems_of(text);
    CHECK(problems.size() >= 1);
    CHECK(problems.size() <= 1000);
    return static_cast<double>(test::allocations() - before);
  };
  const double small = work(size / 4);
  return work(size) / small;
}

}  // namespace

TEST_CASE("characters that are not seen are named with their place") {
  check_rest("\xc2\xa0 deadline: 5\n", 5, 1,
             "a no-break space, U+00A0, at the beginning of '\\302\\240 deadline'",
             "double quotes");
  check_rest("  log-level: info\xe2\x80\x8b\n", 5, 18,
             "a zero-width space, U+200B, at the end of 'info\\342\\200\\213'");
  check_rest("  log-level: \xe2\x80\x9cinfo\xe2\x80\x9d\n", 5, 14,
             "a typographic quotation mark, U+201C, at the beginning of");
  check_rest("  log\xc2\xadlevel: info\n", 5, 3,
             "unknown key 'log\\302\\255level' (which holds a soft hyphen, U+00AD)", "'log-level'");
  check_rest("  log\xe2\x80\x93level: info\n", 5, 3, "(which holds an en dash, U+2013)",
             "'log-level'");
  check_rest("  workers: \"4\xc2\xa0\"\n", 5, 12,
             "'4\\302\\240' (which holds a no-break space, U+00A0)");
  check_rest("resources:\n  \xe2\x80\x93 path: a\n", 6, 3,
             "an en dash, U+2013, at the beginning of");
  check_one("global-settings:\n  root-dir:\xc2\xa0/r\n  mount-dir: /m\n", 3, any,
            "line 2, column 12 holds a no-break space, U+00A0");
}

TEST_CASE("hostile files are refused, and their size is all that the work grows with", "[alone]") {
  constexpr std::size_t mebibyte = 1u << 20;
  CHECK(problems_of(std::string(mebibyte + 1, '#'))[0].text.contains("larger than 1 MiB"));
  for (const std::string piece :
       {"[",  "{",   "[a: ", "{a: ",   "a: [",  "- ",    "? ", "&a ", "*a ", "!",           "'",
        "\"", "|\n", "-\n ", "a: 1\n", "? a\n", "- a\n", "a",  "%",   "\n",  "a: &x [*x]\n"}) {
    INFO(piece);
    CHECK(growth(piece, mebibyte / 4) < 6);
  }
}

TEST_CASE("a drain that makes no sense is refused") {
  for (const char* const value : {"sometimes", "0 s", "10", "1.5 h", "on"}) {
    check_rest(std::string("outputs:\n  - path: a\n    drain: ") + value + "\n", 7, 12,
               "'drain' is '" + std::string(value) + "'", "10 min");
  }
  check_rest("outputs:\n  - path: a\n    flags: temporary\n    drain: on-close\n", 8, 12,
             "does not go with flags: temporary", "leave out one");
}

TEST_CASE("a to-pfs that makes no sense is refused") {
  const auto rule = [](const std::string& value, const std::string& rest) {
    return "outputs:\n  - path: a*\n    drain: on-close\n" + rest + "    to-pfs: " + value + "\n";
  };
  const std::string keep = "    keep: 2\n";
  check_rest(rule("1 in 3", ""), 8, 13, "goes with 'drain' and 'keep' only", "add drain: on-close");
  for (const char* wrong : {"3", "1 in", "2 in 3", "1 of 3", "1 in 0", "1 in 1000001", "1 in 3 h",
                            "1 in -3", "1 in 3x", "all"}) {
    check_rest(rule(wrong, keep), 9, 13, "'to-pfs' is", "say 1 in N, with N from 1 to 1000000");
  }
}

TEST_CASE("a keep that makes no sense is refused") {
  const auto rule = [](const std::string& path, const std::string& rest) {
    return "outputs:\n  - path: " + path + "\n" + rest + "    keep: 2\n";
  };
  const std::string drain = "    drain: on-close\n";
  check_rest(rule("a*", ""), 7, 11, "goes with 'drain' only", "add drain: on-close");
  check_rest(rule("a", drain), 8, 11, "goes with a pattern only", "as in ckpt/step*");
  check_rest(rule("a/**", drain), 8, 11, "last wildcard is **", "as in ckpt/step*");
  check_rest(rule("\"**\"", drain), 8, 11, "last wildcard is **", "as in ckpt/step*");
  check_rest(rule("a*", drain + "    inputs: true\n"), 9, 11, "does not go with inputs: true",
             "leave out one");
  check_rest("outputs:\n  - path: a*\n    drain: on-close\n    keep: 0\n", 8, 11, "keep", "");
}
