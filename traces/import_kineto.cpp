// Reads the trace that PyTorch's profiler exports (Chrome's JSON with Kineto's arguments), one event at a time.
#include <algorithm>
#include <istream>
#include <nlohmann/json.hpp>
#include <vector>

#include "traces/gzip_stream.hpp"
#include "traces/import_profile.hpp"
#include "traces/kineto_event.hpp"
#include "traces/kineto_operators.hpp"

namespace kvroof {
namespace {

using Json = nlohmann::json;
constexpr std::size_t kMaxDepth = 64;

// Where in the file the parser is: what the innermost object or array holds.
enum class Place : std::uint8_t {
  kNothing, kFile, kEvents, kEvent, kArguments, kSizes, kShapes, kShape, kTypes, kValues, kDevices,
  kDevice, kOther
};

class KinetoHandler : public nlohmann::json_sax<Json> {
 public:
  KinetoHandler(GzipStream& stream, ProfileSink& to) : stream_(stream), to_(to) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t v) override { return number(std::to_string(v)); }
  bool number_unsigned(number_unsigned_t v) override { return number(std::to_string(v)); }
  bool number_float(number_float_t, const string_t& text) override { return number(text); }
  bool binary(binary_t&) override { return value(); }

  bool string(string_t& text) override {
    if (place() == Place::kEvent) event_.set(key_, text);
    if (place() == Place::kTypes) event_.add_type(text);
    if (place() == Place::kValues) event_.add_value(text);
    if (place() == Place::kDevice && key_ == "name") device_name_ = text;
    return value();
  }
  bool key(string_t& text) override {
    key_ = text;
    stream_.mark();
    return true;
  }
  bool start_object(std::size_t) override {
    const Place inner = place() == Place::kNothing                         ? Place::kFile
                        : place() == Place::kEvents                        ? Place::kEvent
                        : place() == Place::kEvent && key_ == "args"       ? Place::kArguments
                        : place() == Place::kDevices                       ? Place::kDevice
                                                                           : Place::kOther;
    if (inner == Place::kEvent) {
      event_.reset();
      ++events_;
    }
    if (inner == Place::kDevice) device_ = {}, device_name_.clear();
    return enter(inner);
  }
  bool end_object() override {
    const Place left = place();
    places_.pop_back();
    if (left == Place::kEvent) {
      const std::uint64_t before = counts_.kernels;
      event_.deliver(to_, counts_);
      // A kernel that is left out moves nothing for an operator.
      const bool kernel = event_.category == "kernel";
      if (!kernel || counts_.kernels > before) counts_.of_operators += operators_.see(event_, to_);
    }
    if (left == Place::kDevice) {
      device_.name = device_name_;
      to_.add(device_);
    }
    return value();
  }
  bool start_array(std::size_t) override {
    const bool argument = place() == Place::kArguments;
    const Place inner = place() == Place::kFile && key_ == "traceEvents"        ? Place::kEvents
                        : place() == Place::kFile && key_ == "deviceProperties" ? Place::kDevices
                        : argument && (key_ == "grid" || key_ == "block")       ? Place::kSizes
                        : argument && (key_ == "Input Dims" || key_ == "Input dims") ? Place::kShapes
                        : argument && key_ == "Input type"                      ? Place::kTypes
                        : argument && key_ == "Concrete Inputs"                 ? Place::kValues
                        : place() == Place::kShapes                             ? Place::kShape
                                                                                : Place::kOther;
    if (inner == Place::kEvents) has_events_ = true;
    if (inner == Place::kShape) event_.add_shape();
    size_index_ = 0;
    return enter(inner);
  }
  bool end_array() override {
    places_.pop_back();
    return value();
  }
  bool parse_error(std::size_t position, const std::string& found, const nlohmann::detail::exception&) override {
    if (stream_.problem()) return fail(*stream_.problem());
    if (stream_.ended()) return fail(failure("the JSON breaks off at byte {}: the file was cut", stream_.position()));
    return fail(failure("byte {} of the JSON: `{}` may not stand there{}", position, ending(found),
                        has_events_ ? "; where it is of the name of a Python function, record without "
                                      "with_stack=True"
                                    : ""));
  }

  Result<ProfileCounts> result(bool parsed) const {
    if (problem_) return *problem_;
    if (stream_.problem()) return *stream_.problem();
    if (!parsed) return failure("the JSON cannot be read");
    if (!has_events_) return failure("it has no traceEvents: no trace of PyTorch's profiler");
    if (counts_.kernels == 0 && counts_.left_out.total() > 0) {
      return failure("no kernel in it can be used: {}", counts_.left_out.text());
    }
    if (counts_.kernels == 0) {
      return failure("none of its {} events is a kernel; record with ProfilerActivity.CUDA", events_);
    }
    return counts_;
  }

 private:
  // What was read last of a token, which may be long and is perhaps no text.
  static std::string ending(const std::string& token) {
    constexpr std::size_t kMost = 24;
    std::string text = token.substr(token.size() - std::min(token.size(), kMost));
    std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return text;
  }
  [[nodiscard]] Place place() const { return places_.empty() ? Place::kNothing : places_.back(); }
  bool enter(Place inner) {
    if (places_.empty() && inner != Place::kFile) return fail(failure("it is no JSON object"));
    if (places_.size() >= kMaxDepth) return fail(failure("its values are nested deeper than {}", kMaxDepth));
    places_.push_back(inner);
    return true;
  }
  bool fail(Failure why) {
    if (!problem_) problem_ = std::move(why);
    return false;
  }
  bool value() {
    stream_.mark();
    return true;
  }
  bool number(const std::string& text) {
    const KinetoNumber number{text};
    const auto size = static_cast<std::uint32_t>(number.integer());
    if (place() == Place::kEvent) event_.set(key_, number);
    if (place() == Place::kArguments) event_.set_argument(key_, number);
    if (place() == Place::kShape) event_.add_dimension(number);
    if (place() == Place::kSizes && size_index_ < 3) {
      (key_ == "grid" ? event_.grid : event_.block)[size_index_++] = size;
    }
    if (place() == Place::kDevice) {
      if (key_ == "id") device_.device = size;
      if (key_ == "totalGlobalMem") device_.memory_bytes = number.integer();
      if (key_ == "computeMajor") device_.compute_major = size;
      if (key_ == "computeMinor") device_.compute_minor = size;
      if (key_ == "numSms") device_.multiprocessors = size;
    }
    return value();
  }

  GzipStream& stream_;
  ProfileSink& to_;
  std::vector<Place> places_;
  std::string key_;
  std::size_t size_index_ = 0;
  KinetoEvent event_;
  KinetoOperators operators_;
  DeviceRecord device_;
  std::string device_name_;
  ProfileCounts counts_;
  std::uint64_t events_ = 0;
  bool has_events_ = false;
  std::optional<Failure> problem_;
};

}  // namespace

Result<ProfileCounts> read_kineto(const std::filesystem::path& file, ProfileSink& to) {
  const Result<std::unique_ptr<GzipStream>> stream = GzipStream::open(file);
  if (!stream) return failure("{}", stream.error());
  std::istream text(stream.value().get());
  KinetoHandler handler(*stream.value(), to);
  const bool parsed = Json::sax_parse(text, &handler);
  return handler.result(parsed);
}

}  // namespace kvroof
