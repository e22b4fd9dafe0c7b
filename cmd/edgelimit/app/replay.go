package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/replay"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

// replayHelp is a format of [replay.Window] and of [replay.Fields].
const replayHelp = `
Decides on every request of the logs with the real engine, at the time that the log gives. For each rule it reports the
requests that it would have denied and their identities, what identities send in their busiest window, and a limit that
99 %% of them never reach. Identities, such as addresses, are shown in clear, as they stand in the log.

What would they do?    edgelimit replay --rules rules.yaml access.log*
Who is newly denied?   edgelimit replay --compare old.yaml new.yaml access.log
Another field of JSON:
  edgelimit replay --field api_key=request.headers.X-Api-Key \
    --rules rules.yaml access.json

A LOG of - is standard input; OLD and NEW are rules, with --compare. Logs are in common or combined format of Apache and
nginx, or JSON lines (Caddy, Traefik, nginx, Envoy), gzip or not. They are merged by time, in whatever order they are
given, and sorted within %d lines: servers log a request when it ends. Fields of a request: %s. A rule is asked if its
keys are fields; if not, name them with --field, or say what to ask with --descriptor. Where a log gives times to the
second, windows of a second or less cannot be judged by it. Strict rules are decided here as one node alone would.

Exit status: 0, also when interrupted (it reports on what it has read); 2 if it could not be run, or a log broke off.`

func replayCommand() *cli.Command {
	o := replay.DefaultOptions()
	return &cli.Command{
		Name: "replay", Usage: "show what rules would have done to the traffic of access logs, and suggest limits",
		ArgsUsage:   "[OLD NEW] LOG...",
		Description: fmt.Sprintf(replayHelp, replay.Window, strings.Join(replay.Fields(), ", ")),
		Flags:       replayFlags(&o),
		Action:      func(c *cli.Context) error { return runReplay(c, o) },
	}
}

// replayFlags set o, but for the rules.
func replayFlags(o *replay.Options) []cli.Flag {
	return []cli.Flag{
		plain.flag("rules", "rule `FILE` or directory (repeatable)", new([]string)),
		plain.flag("compare", "the first two arguments are rules, OLD and NEW: report who would be newly denied, and "+
			"who no longer", new(bool)),
		plain.flag("domain", "`NAME` of the domain of the rules, where they have several", &o.Domain),
		plain.flag("descriptor", "`KEY,KEY...` to ask about each request, as path,remote_address; KEY=VALUE is "+
			"constant (repeatable; default: what the rules can match)", (*repeated)(&o.Descriptors)),
		plain.flag("field", "`KEY=PATH` of a field in JSON lines, as api_key=request.headers.X-Api-Key; the key time "+
			"is the request's (repeatable)", (*repeated)(&o.Fields)),
		plain.flag("format", "`FORMAT`: combined or json; auto detects each line's", (*string)(&o.Format)),
		plain.flag("worst", "how many identities to list of each rule", &o.Worst),
		plain.flag("json", "print the report as a JSON object", new(bool)),
	}
}

func runReplay(c *cli.Context, o replay.Options) error {
	names, err := replayRules(c, &o)
	if err != nil {
		return err
	}
	logs, files, err := openLogs(c, names)
	defer files.close()
	if err != nil {
		return err
	}
	report, err := replay.Run(c.Context, o, logs, replayProgress(c.App.ErrWriter, files))
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = json.NewEncoder(c.App.Writer).Encode(report)
	} else {
		err = printReplay(c.App.Writer, report)
	}
	if err == nil && len(report.Failed) > 0 {
		err = fmt.Errorf("the report lacks the rest of: %s", strings.Join(report.Failed, "; "))
	}
	return err
}

// replayRules loads the rules of the flags and arguments, and returns the other arguments: the names of the logs.
func replayRules(c *cli.Context, o *replay.Options) (logs []string, err error) {
	logs = c.Args().Slice()
	switch paths := c.StringSlice("rules"); {
	case c.Bool("compare") && len(paths) > 0:
		return nil, misuse(c.Command, "--compare takes its rules from the first two arguments, OLD and NEW: leave "+
			"--rules out")
	case c.Bool("compare") && len(logs) < 3:
		return nil, misuse(c.Command, "--compare needs OLD NEW LOG...: two rule files (or directories), and logs")
	case c.Bool("compare"):
		var oldErr error
		o.Old, oldErr = rulefile.Load(logs[0])
		o.Rules, err = rulefile.Load(logs[1])
		logs, err = logs[2:], errors.Join(oldErr, err)
	case len(paths) > 0:
		o.Rules, err = rulefile.Load(paths...)
	default:
		o.Rules = rulefile.Sample()
		fmt.Fprintln(c.App.ErrWriter, "edgelimit: no rules given, using the sample rules; see --rules")
	}
	if err == nil && len(logs) == 0 {
		err = misuse(c.Command, "no log was given; - is standard input")
	}
	return logs, err
}

// openLogs opens the logs. files are to be closed, even with an error.
func openLogs(c *cli.Context, names []string) (logs []replay.Log, files *logFiles, err error) {
	files = &logFiles{sized: true}
	for _, name := range names[:min(len(names), replay.MaxLogs+1)] { // one too many is enough for the error
		if name == "-" {
			files.sized = false
			stdin := interruptible(c.Context, c.App.Reader)
			files.open = append(files.open, stdin)
			logs = append(logs, replay.Log{Name: "standard input", Reader: stdin})
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, files, err
		}
		files.open = append(files.open, f)
		info, err := f.Stat()
		if err == nil && info.IsDir() {
			return nil, files, fmt.Errorf("%s is a directory: name the logs in it", name)
		}
		files.sized = files.sized && err == nil && info.Mode().IsRegular()
		if files.sized {
			files.size += info.Size()
		}
		logs = append(logs, replay.Log{Name: name, Reader: io.TeeReader(f, files)})
	}
	return logs, files, nil
}

// logFiles are the open logs, and a writer that counts what is read of files.
type logFiles struct {
	open       []io.Closer
	sized      bool // all logs are regular files, of size bytes together
	size, read int64
}

func (l *logFiles) Write(b []byte) (int, error) {
	l.read += int64(len(b))
	return len(b), nil
}

func (l *logFiles) close() {
	for _, f := range l.open {
		_ = f.Close()
	}
}

// interruptible returns a reader whose blocked reads end when ctx ends. The goroutine that reads from the other stays
// until its read returns, and what it read is lost.
func interruptible(ctx context.Context, from io.Reader) io.ReadCloser {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(w, from)
		w.CloseWithError(err)
	}()
	return r
}

// replayProgress returns a function that prints how far a long replay is.
func replayProgress(out io.Writer, files *logFiles) func(replay.Progress) {
	due := progress()
	return func(p replay.Progress) {
		if !due() {
			return
		}
		part := textIf(files.sized && files.size > 0, " (%d %%)", 100*files.read/max(1, files.size))
		at := "none of them a request yet"
		if p.At > 0 {
			at = "up to " + time.Unix(0, p.At).UTC().Format(time.DateTime)
		}
		fmt.Fprintf(out, "edgelimit: %d lines read%s, %s\n", p.Lines, part, at)
	}
}
