package accesslog

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLines(t *testing.T) {
	lines, err := NewLines(strings.NewReader(string(compressed(t, "{\"any\":1}\r\n\n"+strings.Repeat("x", MaxLine+1)+"\nlast"))))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		text string
		err  error
	}{{`{"any":1}`, nil}, {"", nil}, {"", ErrTooLong}, {"last", nil}, {"", io.EOF}} {
		got, err := lines.Next()
		if string(got) != want.text || err != want.err || lines.Number() != i+1 {
			t.Errorf("line %d is %.20q, %v, numbered %d, want %q, %v", i+1, got, err, lines.Number(), want.text, want.err)
		}
	}
	broken := errors.New("disk on fire")
	lines, err = NewLines(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := lines.Next(); string(got) != "a" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := lines.Next(); !errors.Is(err, broken) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v, want the reader's error in line 2", err)
	}
}
