package logfile

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func add(f *File, text string) { f.Add(func(b []byte) []byte { return append(b, text...) }) }

func content(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	testkit.Must(t, err)
	return string(b)
}

// Lines go to the file that has the name, renamed, removed or truncated as the former one may be.
func TestRotation(t *testing.T) {
	name, log := filepath.Join(t.TempDir(), "a.log"), new(testkit.Log)
	f, err := Open(name, "test log", log.Logger())
	testkit.Must(t, err)
	add(f, "one")
	testkit.Must(t, os.Rename(name, name+".1"))
	f.Flush()
	add(f, "two")
	f.Flush()
	testkit.Must(t, os.Truncate(name, 0))
	add(f, "three")
	f.Close()
	if a, b := content(t, name+".1"), content(t, name); a != "one\n" || b != "three\n" || f.Failures() != 0 {
		t.Errorf("%q and %q, %d failures: %s", a, b, f.Failures(), log)
	}
}

// A pipe is not waited for: neither one that nobody reads, nor one whose reader has stopped.
func TestStalledReader(t *testing.T) {
	name, log := filepath.Join(t.TempDir(), "pipe"), new(testkit.Log)
	testkit.Must(t, syscall.Mkfifo(name, 0o600))
	if _, err := Open(name, "test log", log.Logger()); err == nil {
		t.Fatal("it opened a pipe without a reader, whose lines nobody gets")
	}
	reader, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	testkit.Must(t, err)
	defer reader.Close()
	f, err := Open(name, "test log", log.Logger())
	testkit.Must(t, err)
	add(f, "first")
	f.Flush()
	if line, err := bufio.NewReaderSize(reader, 16).ReadString('\n'); line != "first\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	began := time.Now()
	for range 1 << 20 >> 10 { // far more than a pipe holds
		add(f, strings.Repeat("x", 1<<10))
	}
	f.Close()
	if took := time.Since(began); f.Failures() == 0 || took > testkit.Patience {
		t.Errorf("%d failures after %v", f.Failures(), took)
	}
	if !log.HasLine("the test log cannot be written: lines are lost", name) {
		t.Errorf("the log is %s", log)
	}
}

// Standard output that nobody reads cannot be given a deadline: nothing but the goroutine that writes may wait for it.
func TestStuckStdout(t *testing.T) {
	var pipe [2]int
	testkit.Must(t, syscall.Pipe(pipe[:]))
	reader, stdout, log := os.NewFile(uintptr(pipe[0]), "reader"), os.Stdout, new(testkit.Log)
	os.Stdout = os.NewFile(uintptr(pipe[1]), "stdout")
	defer func() { os.Stdout = stdout }()
	defer os.Stdout.Close()
	defer reader.Close() // the write fails then
	f, err := Open(Stdout, "test log", log.Logger())
	testkit.Must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 4 * maxPending >> 10 { // far more than a pipe and the memory hold
			add(f, strings.Repeat("x", 1<<10))
		}
		f.Flush()
		if f.Failures() == 0 {
			t.Error("lines are lost in silence")
		}
		f.Close()
		f.Close()
	}()
	select {
	case <-ended:
	case <-time.After(testkit.Patience):
		t.Fatal("they wait for a pipe that nobody reads")
	}
	if !log.HasLine("the test log cannot be written: lines are lost", "does anybody read the pipe?") {
		t.Errorf("the log is %s", log)
	}
}

// Nothing is lost where the file takes what it is given, also of lines longer than the buffer.
func TestAllLines(t *testing.T) {
	name, log := filepath.Join(t.TempDir(), "a.log"), new(testkit.Log)
	f, err := Open(name, "test log", log.Logger())
	testkit.Must(t, err)
	var want strings.Builder
	for i := range 3000 {
		line := strings.Repeat("x", i%1000)
		if i%500 == 0 {
			line = strings.Repeat("y", 2*bufferSize)
		}
		add(f, line)
		want.WriteString(line + "\n")
	}
	f.Close()
	if got := content(t, name); got != want.String() || f.Failures() != 0 {
		t.Errorf("%d bytes of %d, %d failures: %s", len(got), want.Len(), f.Failures(), log)
	}
}
