// Release builds everything that a release of edgelimit publishes: archives, Debian and RPM packages, a CycloneDX SBOM
// of each binary, and SHA256SUMS. The same commit, version and Go toolchain give the same bytes in any folder at any
// time. It is a module of its own, so that nobody who uses edgelimit inherits its libraries.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const usage = `release writes archives, packages, SBOMs and SHA256SUMS of edgelimit to a folder.

  make release VERSION=v1.2.3
  go -C node/deploy/release run . --version v1.2.3 --targets linux/amd64 --out /tmp/dist

Each target gets edgelimit_VERSION_OS_ARCH.tar.gz, and its SBOM, .cdx.json; linux also .deb and .rpm.
Times in them are SOURCE_DATE_EPOCH, by default the commit's: who builds the same commit and version with
the same Go gets the same bytes. To verify a download: sha256sum --check --ignore-missing SHA256SUMS

Flags:
`

// options are what the flags set.
type options struct {
	version string   // v1.2.3
	out     string   // the folder that is written
	targets []string // OS/ARCH, as Go names them
	dirty   bool     // whether changes that are not committed may be in a release
	json    bool     // whether a report goes to standard output
}

// report says what a release consists of.
type report struct {
	Version   string     `json:"version"`
	Commit    string     `json:"commit"` // "-dirty" behind it where files were changed
	Time      time.Time  `json:"time"`   // of everything in it
	Go        string     `json:"go"`     // the toolchain that gives the same bytes again
	Artifacts []artifact `json:"artifacts"`
}

// artifact is a file of a release.
type artifact struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // in hexadecimal digits
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); errors.Is(err, flag.ErrHelp) {
		return
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, progress io.Writer) error {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	r, err := newRelease(o, progress)
	if err != nil {
		return err
	}
	made, err := r.write()
	if err != nil || !o.json {
		return err
	}
	enc := json.NewEncoder(stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(made)
}

func parse(args []string, progress io.Writer) (options, error) {
	var o options
	var targets string
	set := flag.NewFlagSet("release", flag.ContinueOnError)
	set.SetOutput(progress)
	set.StringVar(&o.version, "version", "", "the `VERSION` to release, as v1.2.3 (default: what git describe says)")
	set.StringVar(&o.out, "out", "", "the `FOLDER` to write: an empty one, or an earlier release (default: dist)")
	set.StringVar(&targets, "targets", "linux/amd64,linux/arm64,darwin/arm64,windows/amd64",
		"the `OS/ARCH` pairs to build for, with commas between them")
	set.BoolVar(&o.dirty, "dirty", false, "release even with changes that are not committed")
	set.BoolVar(&o.json, "json", false, "print what was written as JSON")
	set.Usage = func() {
		fmt.Fprint(progress, usage)
		set.PrintDefaults()
	}
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("takes no arguments, got %q: see --help", set.Arg(0))
	}
	for target := range strings.SplitSeq(targets, ",") {
		goos, goarch, ok := strings.Cut(target, "/")
		if !ok || goos == "" || goarch == "" {
			return o, fmt.Errorf("--targets %s: want OS/ARCH, as linux/amd64", target)
		}
		o.targets = append(o.targets, target)
	}
	return o, nil
}

// release is one release while it is made.
type release struct {
	options
	root     string // of the repository
	commit   string
	time     time.Time
	progress io.Writer
}

// newRelease finds out what is released, and refuses what nobody could build again.
func newRelease(o options, progress io.Writer) (*release, error) {
	r := &release{options: o, progress: progress}
	var err error
	if r.root, err = r.git("rev-parse", "--show-toplevel"); err != nil {
		return nil, fmt.Errorf("a release is built from a clone of the repository: %w", err)
	}
	if r.commit, err = r.git("rev-parse", "HEAD"); err != nil {
		return nil, err
	}
	changed, err := r.git("status", "--porcelain", "--untracked-files=all")
	if err != nil {
		return nil, err
	}
	if changed != "" {
		if !o.dirty {
			return nil, fmt.Errorf("nobody could build this again: commit these changes first, or pass --dirty:\n%s",
				changed)
		}
		r.commit += "-dirty"
	}
	if r.version == "" {
		if r.version, err = r.git("describe", "--tags", "--always", "--dirty"); err != nil {
			return nil, err
		}
	}
	if _, err := packageVersion(r.version); err != nil {
		return nil, err
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = r.git("log", "-1", "--format=%ct"); err != nil {
			return nil, err
		}
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH: want seconds since 1970, got %q", seconds)
	}
	r.time = time.Unix(epoch, 0).UTC()
	r.out, err = filepath.Abs(cmp.Or(r.out, filepath.Join(r.root, "dist")))
	return r, err
}

func (r *release) git(args ...string) (string, error) { return r.command("git", args, nil) }

// command runs a program at the root of the repository, with env beside the environment, and returns what it prints.
func (r *release) command(name string, args, env []string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// write makes the release.
func (r *release) write() (*report, error) {
	if err := r.clear(); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "edgelimit-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	goVersion, err := r.command("go", []string{"env", "GOVERSION"}, nil)
	if err != nil {
		return nil, err
	}
	// The completions come from a binary that runs here.
	host, err := r.build(work, runtime.GOOS+"/"+runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	files, err := r.files(host)
	if err != nil {
		return nil, err
	}
	for _, target := range r.targets {
		if err := r.writeTarget(work, target, files); err != nil {
			return nil, fmt.Errorf("%s: %w", target, err)
		}
	}
	made := &report{Version: r.version, Commit: r.commit, Time: r.time, Go: goVersion}
	made.Artifacts, err = writeSums(r.out)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(r.progress, "%d files and SHA256SUMS of %s are in %s\n", len(made.Artifacts), r.version, r.out)
	return made, nil
}

// clear removes the files of an earlier release, and nothing else.
func (r *release) clear() error {
	earlier := map[string]bool{}
	if listed, err := os.ReadFile(filepath.Join(r.out, sums)); err == nil {
		earlier[sums] = true
		for line := range strings.Lines(string(listed)) {
			_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			earlier[name] = strings.HasPrefix(name, "edgelimit")
		}
	}
	entries, _ := os.ReadDir(r.out)
	for _, entry := range entries {
		if !earlier[entry.Name()] {
			return fmt.Errorf("%s has a file of no earlier release, %s: empty it, or name another folder with --out",
				r.out, entry.Name())
		}
	}
	for _, entry := range entries {
		if err := os.Remove(filepath.Join(r.out, entry.Name())); err != nil {
			return err
		}
	}
	return os.MkdirAll(r.out, 0o755)
}

func (r *release) writeTarget(work, target string, files []file) error {
	fmt.Fprintf(r.progress, "building %s for %s\n", r.version, target)
	binary, err := r.build(work, target)
	if err != nil {
		return err
	}
	goos, goarch, _ := strings.Cut(target, "/")
	name := fmt.Sprintf("edgelimit_%s_%s_%s", strings.TrimPrefix(r.version, "v"), goos, goarch)
	if err := r.writeSBOM(binary, name+".cdx.json"); err != nil {
		return err
	}
	all := append([]file{{path: filepath.Base(binary), source: binary, mode: 0o755}}, files...)
	if err := r.writeArchive(name, all); err != nil || goos != "linux" {
		return err
	}
	return r.writePackages(goarch, all)
}
