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

// createPlot creates the file of --plot, before a run that may take long. It is nil without the flag.
func createPlot(c *cli.Context) (*os.File, error) {
	if c.String("plot") == "" {
		return nil, nil
	}
	return os.Create(c.String("plot"))
}

// writePlot draws a report into the file of --plot, if there is one, and closes it.
func writePlot(svg *os.File, report interface{ WritePlot(io.Writer) error }) error {
	if svg == nil {
		return nil
	}
	return errors.Join(report.WritePlot(svg), svg.Close())
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
