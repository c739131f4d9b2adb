package app

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Log formats.
const (
	LogText = "text"
	LogJSON = "json"
)

// LogOptions say what is logged and how.
type LogOptions struct {
	// Format is LogText (key=value, for people) or LogJSON (one object per line).
	Format string
	// Verbosity is the highest V level that is written: 0 is what an operator must see, 3 the story of each decision, 5 everything.
	Verbosity int
}

// Logger builds the logger of a process, writing to w. Errors are written at every verbosity. An unknown format or a negative
// verbosity is an error.
func Logger(w io.Writer, o LogOptions) (logr.Logger, error) {
	if o.Verbosity < 0 {
		return logr.Logger{}, fmt.Errorf("log verbosity %d: it must be 0 or more", o.Verbosity)
	}
	// logr.V(n) becomes slog level −n.
	handler := &slog.HandlerOptions{Level: slog.Level(-o.Verbosity)}
	switch o.Format {
	case LogText, "":
		return logr.FromSlogHandler(slog.NewTextHandler(w, handler)), nil
	case LogJSON:
		return logr.FromSlogHandler(slog.NewJSONHandler(w, handler)), nil
	}
	return logr.Logger{}, fmt.Errorf("log format %q: it must be %q or %q", o.Format, LogText, LogJSON)
}

// InstallLogger sends the logs of the Kubernetes libraries (klog, controller-runtime) to log, less loud: see Library. It changes
// process-wide state: only main calls it, once, before anything logs.
func InstallLogger(log logr.Logger) {
	log = libraryLogger(log)
	klog.SetLoggerWithOptions(log, klog.ContextualLogger(true))
	ctrllog.SetLogger(log)
}

// BindLogFlags declares --v and --log-json, the log flags of KAI's scheduler.
func BindLogFlags(fs *pflag.FlagSet, o *LogOptions) {
	fs.IntVar(&o.Verbosity, "v", o.Verbosity, "highest level of messages to log (0 to 10)")
	fs.BoolFunc("log-json", "log one JSON object per line", func(s string) error {
		on, err := strconv.ParseBool(s)
		if err == nil {
			o.Format = map[bool]string{true: LogJSON, false: LogText}[on]
		}
		return err
	})
	fs.Lookup("log-json").DefValue = "false"
}

// BindZapFlags declares the log flags of KAI's other binaries. --zap-log-level and --zap-encoder are honoured, and --zap-devel=false
// makes JSON the encoder unless --zap-encoder names one. The other two are accepted without effect, since they tune a library that
// is not used here.
func BindZapFlags(fs *pflag.FlagSet, o *LogOptions) {
	fs.Func("zap-log-level", "debug, info, error, panic, or a number: the highest level of messages to log", func(s string) error {
		switch s {
		case "panic", "error", "info":
			o.Verbosity = 0
		case "debug":
			o.Verbosity = 1
		default:
			n, err := strconv.Atoi(s)
			if err != nil || n < 0 {
				return fmt.Errorf("%q is neither debug, info, error, panic nor a number from 0", s)
			}
			o.Verbosity = n
		}
		return nil
	})
	named := false // the encoder is, in whatever order the flags come
	fs.Func("zap-encoder", "json or console", func(s string) error {
		switch s {
		case "json":
			o.Format = LogJSON
		case "console":
			o.Format = LogText
		default:
			return fmt.Errorf("%q is neither json nor console", s)
		}
		named = true
		return nil
	})
	fs.BoolFunc("zap-devel", "log for people; false: JSON, unless --zap-encoder says otherwise", func(s string) error {
		on, err := strconv.ParseBool(s)
		if err == nil && !named {
			o.Format = map[bool]string{true: LogText, false: LogJSON}[on]
		}
		return err
	})
	fs.Lookup("zap-devel").DefValue = "true"
	fs.String("zap-stacktrace-level", "", "accepted, no effect")
	fs.String("zap-time-encoding", "", "accepted, no effect")
}
