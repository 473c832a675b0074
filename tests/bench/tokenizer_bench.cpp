// Speed of encoding and decoding text, one core: ordinary English, and long texts without a break.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "kernels/tokenizer/tokenizer.hpp"

namespace {

using kvroof::Tokenizer;

const std::string kSource = KVROOF_SOURCE_DIR;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Tokenizer load(const std::string& kind) {
  return Tokenizer::load(kSource + (kind == "demo" ? "/models/demo" : "/tests/golden/tokenizers/" + kind) +
                         "/tokenizer.json");
}

std::string text_of(const std::string& name) {
  constexpr std::size_t kMegabyte = 1'000'000;
  if (name == "letters") return std::string(kMegabyte, 'a');
  if (name == "spaces") return std::string(kMegabyte, ' ');
  return read_file(kSource + "/models/demo/held-out.txt");
}

// Every run starts with an empty word cache, as a command does.
void encode(benchmark::State& state, const std::string& kind, const std::string& name) {
  const Tokenizer tokenizer = load(kind);
  const std::string text = text_of(name);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(text, true));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}

void decode(benchmark::State& state, const std::string& kind) {
  const Tokenizer tokenizer = load(kind);
  const std::string text = text_of("english");
  const auto ids = tokenizer.encode(text, true);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids, true));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}

const bool registered = [] {
  for (const char* kind :
       {"demo", "gpt2", "gpt-neox", "llama3", "qwen2", "llama2", "gemma", "bloom", "falcon", "unknown"}) {
    for (const char* text : {"english", "letters", "spaces"}) {
      const std::string name = std::string("tokenizer_encode/") + kind + "/" + text;
      benchmark::RegisterBenchmark(name.c_str(), encode, kind, text)->Unit(benchmark::kMillisecond);
    }
  }
  for (const char* kind : {"demo", "llama3", "llama2"}) {
    const std::string name = std::string("tokenizer_decode/") + kind;
    benchmark::RegisterBenchmark(name.c_str(), decode, kind)->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
