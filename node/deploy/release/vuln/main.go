// Vuln runs govulncheck, in the version that go.mod pins, over the packages of the folder it is started for. It fails
// where a vulnerability that the code calls is known, and says so where the database cannot be reached: then nothing
// was checked, and it succeeds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/vuln/scan"
)

const usage = `vuln [flags] [PACKAGES] checks the packages (default ./...) for known vulnerabilities.

The database is GOVULNDB, by default https://vuln.go.dev. Where it cannot be reached, it says that nothing was checked
and succeeds. A copy on disk does as well: GOVULNDB=file:///path. Exit status: 0 nothing found or nothing checked,
3 a vulnerability found, 1 anything else.

Flags:
`

// patience is how long the database has to answer.
const patience = 20 * time.Second

func main() {
	err := run(context.Background(), os.Args[1:], os.Getenv("GOVULNDB"), os.Stdout, os.Stderr)
	var exit interface{ ExitCode() int }
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode()) // govulncheck has printed why
	default:
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, db string, stdout, stderr io.Writer) error {
	set := flag.NewFlagSet("vuln", flag.ContinueOnError)
	set.SetOutput(stderr)
	dir := set.String("C", ".", "the `FOLDER` of the module to check")
	level := set.String("scan", "symbol", "what counts as used: a called `LEVEL` of symbol, package or module")
	set.Usage = func() {
		fmt.Fprint(stderr, usage)
		set.PrintDefaults()
	}
	if err := set.Parse(args); err != nil {
		return err
	}
	if db == "" {
		db = "https://vuln.go.dev"
	}
	if err := reach(ctx, db); err != nil {
		fmt.Fprintf(stderr, "vuln: NOTHING WAS CHECKED: the database cannot be reached (%v)\n", err)
		return nil
	}
	command := []string{"-C", *dir, "-db", db, "-scan", *level}
	if packages := set.Args(); *level != "module" && len(packages) > 0 {
		command = append(command, packages...)
	} else if *level != "module" {
		command = append(command, "./...")
	}
	cmd := scan.Command(ctx, command...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Wait()
}

// reach asks a database on the network for its index. govulncheck itself reports what is wrong with one on disk.
func reach(ctx context.Context, db string) error {
	if !strings.HasPrefix(db, "http") {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(db, "/")+"/index/db.json", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", request.URL, answer.Status)
	}
	return nil
}
