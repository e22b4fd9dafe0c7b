package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/replay"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

func replayCommand() *cli.Command {
	def := replay.DefaultOptions()
	return &cli.Command{
		Name:      "replay",
		Usage:     "show what rules would have done to the traffic of access logs, and suggest limits",
		ArgsUsage: "[OLD NEW] LOG...",
		Description: "Decides on every request of the logs with the real engine, at the time that the log gives. For " +
			"each " +
			"rule it reports the requests that it would have denied and their identities, what identities send in " +
			"their " +
			"busiest window, and a limit that 99 % of them never reach. Identities, such as addresses, are shown in " +
			"clear, " +
			"as they stand in the log.\n\n" +
			"What would they do?    edgelimit replay --rules rules.yaml access.log*\n" +
			"Who is newly denied?   edgelimit replay --compare old.yaml new.yaml access.log\n" +
			"Another field of JSON:  edgelimit replay --field api_key=request.headers.X-Api-Key --rules rules.yaml " +
			"access.json\n\n" +
			"A LOG of - is standard input; OLD and NEW are rules, with --compare. Logs are in common or combined " +
			"format of " +
			"Apache and nginx, or JSON lines (Caddy, Traefik, nginx, Envoy), gzip or not. They are merged by time, " +
			"in " +
			"whatever order they are given, and sorted within " + strconv.Itoa(replay.Window) + " lines: servers log " +
			"a " +
			"request when it ends.\n" +
			"Fields of a request: " + strings.Join(replay.Fields(), ", ") + ".\n" +
			"A rule is asked if its keys are fields; if not, name them with --field, or say what to ask with " +
			"--descriptor. " +
			"Where a log gives times to the second, windows of a second or less cannot be judged by it.\n\n" +
			"Exit status: 0, also when interrupted (it reports on what it has read); 2 if it could not be run, or a " +
			"log " +
			"broke off.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "rules", Usage: "rule `FILE` or directory (repeatable)"},
			&cli.BoolFlag{Name: "compare",
				Usage: "the first two arguments are rules, OLD and NEW: report who would be newly denied, and who no " +
					"longer"},
			&cli.StringFlag{Name: "domain", Usage: "`NAME` of the domain of the rules, where they have several"},
			&cli.GenericFlag{Name: "descriptor", Value: new(repeated), Usage: "`KEY,KEY...` to ask about each " +
				"request, as " +
				"path,remote_address; KEY=VALUE is constant (repeatable; default: what the rules can match)"},
			&cli.GenericFlag{Name: "field", Value: new(repeated), Usage: "`KEY=PATH` of a field in JSON lines, as " +
				"api_key=request.headers.X-Api-Key; the key time is the request's (repeatable)"},
			&cli.StringFlag{Name: "format", Usage: "`FORMAT`: combined or json; auto detects each line's",
				Value: string(def.Format)},
			&cli.IntFlag{Name: "worst", Usage: "how many identities to list of each rule", Value: def.Worst},
			&cli.BoolFlag{Name: "json", Usage: "print the report as a JSON object"},
		},
		Action: runReplay,
	}
}

// repeated is a repeatable flag whose values may hold commas.
type repeated []string

func (r *repeated) Set(value string) error {
	*r = append(*r, value)
	return nil
}

func (r *repeated) String() string { return strings.Join(*r, " ") }

func runReplay(c *cli.Context) error {
	o, names, err := replayOptions(c)
	if err != nil {
		return err
	}
	logs, size, closeLogs, err := openLogs(c, names)
	if err != nil {
		return err
	}
	defer closeLogs()
	report, err := replay.Run(c.Context, o, logs, replayProgress(c.App.ErrWriter, size))
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = writeSafeJSON(c.App.Writer, report)
	} else {
		err = printReplay(c.App.Writer, report)
	}
	if err == nil && len(report.Failed) > 0 {
		err = fmt.Errorf("the report lacks the rest of: %s", strings.Join(report.Failed, "; "))
	}
	return err
}

// replayOptions returns the options, and the names of the logs.
func replayOptions(c *cli.Context) (replay.Options, []string, error) {
	o := replay.DefaultOptions()
	o.Domain, o.Format, o.Worst = c.String("domain"), replay.Format(c.String("format")), c.Int("worst")
	o.Descriptors, o.Fields = *c.Generic("descriptor").(*repeated), *c.Generic("field").(*repeated)
	args := c.Args().Slice()
	var err error
	switch paths := c.StringSlice("rules"); {
	case c.Bool("compare") && len(paths) > 0:
		return o, nil, misuse(c.Command, "--compare takes its rules from the first two arguments, OLD and NEW: leave "+
			"--rules out")
	case c.Bool("compare") && len(args) < 3:
		return o, nil, misuse(c.Command, "--compare needs OLD NEW LOG...: two rule files (or directories), and logs")
	case c.Bool("compare"):
		var oldErr error
		o.Old, oldErr = rulefile.Load(args[0])
		o.Rules, err = rulefile.Load(args[1])
		args, err = args[2:], errors.Join(oldErr, err)
	case len(paths) > 0:
		o.Rules, err = rulefile.Load(paths...)
	default:
		o.Rules = rulefile.Sample()
		fmt.Fprintln(c.App.ErrWriter, "edgelimit: no rules given, using the sample rules; see --rules")
	}
	if err == nil && len(args) == 0 {
		err = misuse(c.Command, "no log was given; - is standard input")
	}
	return o, args, err
}

// openLogs opens the logs. size counts the bytes that were read of them.
func openLogs(c *cli.Context, names []string) (logs []replay.Log, size *logSize, closeAll func(), err error) {
	var files []io.Closer
	closeAll = func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	size = &logSize{known: true}
	for _, name := range names[:min(len(names), replay.MaxLogs+1)] { // one too many is enough for the error
		if name == "-" {
			size.known = false
			stdin := &interruptible{ctx: c.Context, from: c.App.Reader}
			logs = append(logs, replay.Log{Name: "standard input", Reader: stdin})
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			closeAll()
			return nil, nil, nil, err
		}
		files = append(files, f)
		info, err := f.Stat()
		if err == nil && info.IsDir() {
			closeAll()
			return nil, nil, nil, fmt.Errorf("%s is a directory: name the logs in it", name)
		}
		size.known = size.known && err == nil && info.Mode().IsRegular()
		if size.known {
			size.all += info.Size()
		}
		logs = append(logs, replay.Log{Name: name, Reader: &counted{f, &size.read}})
	}
	return logs, size, closeAll, nil
}

// logSize is the number of bytes of all logs, and of those that were read.
type logSize struct {
	known     bool // all logs are files
	read, all int64
}

type counted struct {
	from io.Reader
	read *int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	*c.read += int64(n)
	return n, err
}

// interruptible ends a blocked read when ctx ends. The goroutine that reads stays until its read returns, and what it
// read is lost.
type interruptible struct {
	ctx    context.Context
	from   io.Reader
	buffer []byte
	left   []byte
}

func (r *interruptible) Read(b []byte) (int, error) {
	if len(r.left) == 0 {
		if r.buffer == nil {
			r.buffer = make([]byte, 64<<10)
		}
		type result struct {
			n   int
			err error
		}
		done := make(chan result, 1)
		go func() {
			n, err := r.from.Read(r.buffer)
			done <- result{n, err}
		}()
		select {
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		case got := <-done:
			r.left = r.buffer[:got.n]
			if got.n == 0 {
				return 0, got.err
			}
		}
	}
	n := copy(b, r.left)
	r.left = r.left[n:]
	return n, nil
}

// progressInterval is the time between two lines of progress, and before the first.
const progressInterval = 2 * time.Second

func replayProgress(out io.Writer, size *logSize) func(replay.Progress) {
	return replayProgressFrom(out, size, time.Now().Add(progressInterval))
}

func replayProgressFrom(out io.Writer, size *logSize, next time.Time) func(replay.Progress) {
	return func(p replay.Progress) {
		now := time.Now()
		if now.Before(next) {
			return
		}
		next = now.Add(progressInterval)
		part := ""
		if size.known && size.all > 0 {
			part = fmt.Sprintf(" (%d %%)", 100*size.read/size.all)
		}
		at := "none of them a request yet"
		if p.At > 0 {
			at = "up to " + time.Unix(0, p.At).UTC().Format(time.DateTime)
		}
		fmt.Fprintf(out, "edgelimit: %d lines read%s, %s\n", p.Lines, part, at)
	}
}
