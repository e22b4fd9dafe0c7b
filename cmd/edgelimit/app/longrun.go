package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// openInput opens a file; - is standard input.
func openInput(c *cli.Context, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(c.App.Reader), nil
	}
	return os.Open(name)
}

// plotted draws the report of a run into the file of --plot, which it creates before the run, as that may take long.
func plotted[R interface{ WritePlot(io.Writer) error }](c *cli.Context, run func() (R, error)) (report R, err error) {
	name := c.String("plot")
	if name == "" {
		return run()
	}
	svg, err := os.Create(name)
	if err != nil {
		return report, err
	}
	defer svg.Close()
	if report, err = run(); err != nil {
		return report, err
	}
	return report, errors.Join(report.WritePlot(svg), svg.Close())
}

// progressInterval is the time between two lines of progress, and before the first.
const progressInterval = 2 * time.Second

// progress returns a function that reports whether a line of progress is due.
func progress() (due func() bool) {
	next := time.Now().Add(progressInterval)
	return func() bool {
		now := time.Now()
		if now.Before(next) {
			return false
		}
		next = now.Add(progressInterval)
		return true
	}
}

// printVerdict prints what is wrong with a run.
func printVerdict(out io.Writer, wrong []string) error {
	text := "ok: over-admission stayed within the nodes' bound"
	if len(wrong) > 0 {
		text = "NOT ok:\n - " + strings.Join(wrong, "\n - ")
	}
	_, err := fmt.Fprintf(out, "\n%s\n", text)
	return err
}
