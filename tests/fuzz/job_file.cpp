// A job file of any bytes: values or problems, never an exception or a crash.
#include <cstdint>
#include <string>

#include "config/load.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto parsed = efs::config::parse(text, "job.yaml");
  if (parsed) (void)efs::config::classify(*parsed, "a/b/c", false);
  return 0;
}
