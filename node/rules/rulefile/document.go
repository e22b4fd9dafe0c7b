package rulefile

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// documents yields the root of each YAML document, and reports text that is no YAML.
func (p *parser) documents(data []byte) iter.Seq[*yaml.Node] {
	return func(yield func(*yaml.Node) bool) {
		if len(data) > maxFileSize {
			p.stop(&yaml.Node{Line: 1, Column: 1}, "the file is larger than %d bytes: split it", maxFileSize)
			return
		}
		if at, reason := unreadable(data); reason != "" {
			p.stop(at, "%s", reason)
			return
		}
		dec := yaml.NewDecoder(bytes.NewReader(data))
		for {
			root, err := decode(dec)
			if err == io.EOF {
				return
			}
			if err != nil {
				first := p.firstOnly(data, err)
				if first != nil {
					p.single = yield(first)
				}
				at, reason := syntaxError(data, err)
				if p.single { // the reader of the first document does not see it
					p.warn(at, "only the first document of a file is read, and what follows it cannot be: %s", reason)
				} else {
					p.stop(at, "%s", reason)
				}
				return
			}
			if !yield(root) {
				return
			}
		}
	}
}

// firstOnly returns the first document of a file of envoyproxy/ratelimit which our reader rejected with err because it
// looks ahead; nil if it cannot be read by itself, or has been.
func (p *parser) firstOnly(data []byte, err error) *yaml.Node {
	end := firstEnd(data)
	if p.single || p.opt.Compatibility != Ratelimit || end == len(data) {
		return nil
	}
	if line, _ := splitLine(err); line < position(data, end).Line {
		return nil
	}
	root, err := decode(yaml.NewDecoder(bytes.NewReader(data[:end])))
	if err != nil {
		return nil
	}
	return root
}

// firstEnd returns where the first document of a text ends: before the first marker after its content or its own.
func firstEnd(data []byte) int {
	begun, at := false, 0
	for line := range bytes.Lines(data) {
		text := bytes.TrimRight(line, " \t\r\n")
		marker := bytes.HasPrefix(text, []byte("---")) || bytes.HasPrefix(text, []byte("..."))
		if marker = marker && (len(text) == 3 || text[3] == ' ' || text[3] == '\t'); marker && begun {
			return at
		}
		begun = begun || marker || len(text) > 0 && text[0] != '#' && text[0] != '%'
		at += len(line)
	}
	return len(data)
}

// decode reads the next document. The YAML reader panics on its own failures; a file must not crash a node.
func decode(dec *yaml.Decoder) (root *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("yaml: %v", r)
		}
	}()
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}, nil
	}
	return doc.Content[0], nil
}

// unreadable finds the first character that YAML does not allow. The YAML reader does not report its place.
func unreadable(data []byte) (at *yaml.Node, reason string) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	for i, r := range string(data) {
		switch {
		case r == utf8.RuneError && !bytes.HasPrefix(data[i:], []byte("\ufffd")):
			return position(data, i), "the file is not UTF-8 text here"
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r >= 0x7f && r < 0xa0 && r != 0x85,
			r == 0xfffe, r == 0xffff:
			return position(data, i), fmt.Sprintf("control character %U is not allowed", r)
		}
	}
	return nil, ""
}

// position returns the line and the column of the byte at offset.
func position(data []byte, offset int) *yaml.Node {
	before := data[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return &yaml.Node{Line: 1 + bytes.Count(before, []byte("\n")), Column: 1 + utf8.RuneCount(before[start:])}
}

// SyntaxError returns the problem of a file that the YAML reader rejected with err.
func SyntaxError(file string, data []byte, err error) *Error {
	at, reason := syntaxError(data, err)
	if place, why := unreadable(data); place != nil {
		at, reason = place, why
	}
	lines := lineReader{rest: data}
	return &Error{File: file, Line: at.Line, Column: at.Column, Reason: reason, Source: lines.line(at.Line)}
}

// syntaxError returns the place and the reason of a YAML error.
func syntaxError(data []byte, err error) (at *yaml.Node, reason string) {
	line, reason := splitLine(err)
	// Without a line, or with that of the block around ("did not find expected ..."), what helps is how far it came.
	if line == 0 || strings.HasPrefix(reason, "did not find expected") {
		line = stuck(data, reason)
	}
	return &yaml.Node{Line: line, Column: 1}, "this is not valid YAML: " + reason
}

// splitLine splits the line number, if there is one, off an error of the YAML reader.
func splitLine(err error) (line int, reason string) {
	reason = strings.TrimPrefix(err.Error(), "yaml: ")
	if _, err := fmt.Sscanf(reason, "line %d: ", &line); err == nil {
		_, reason, _ = strings.Cut(reason, ": ")
	}
	return line, reason
}

// stuck returns the line at which the YAML reader stops for that reason. The reader may have looked ahead past the end
// of that line: if the file fails in the same way without its last line, the line before is meant.
func stuck(data []byte, reason string) int {
	r := byteReader{bytes.NewReader(data)}
	failure(r)
	last := lineStart(data[:len(data)-r.Len()])
	at := last
	for range 3 {
		before := trimLines(data[:at])
		if len(before) == 0 || failure(bytes.NewReader(before)) != reason {
			return position(data, at).Line
		}
		at = lineStart(before)
	}
	// Something was opened long before and never closed.
	return position(data, last).Line
}

// failure returns why the YAML reader rejects a text.
func failure(text io.Reader) (reason string) {
	dec := yaml.NewDecoder(text)
	for {
		if _, err := decode(dec); err != nil {
			_, reason = splitLine(err)
			return reason
		}
	}
}

// lineStart returns the start of the last line of data.
func lineStart(data []byte) int {
	return bytes.LastIndexByte(bytes.TrimSuffix(data, []byte("\n")), '\n') + 1
}

// trimLines removes empty lines and comments from the end.
func trimLines(data []byte) []byte {
	for {
		data = bytes.TrimRight(data, " \t\r\n")
		start := lineStart(data)
		if !bytes.HasPrefix(bytes.TrimLeft(data[start:], " \t"), []byte("#")) {
			return data
		}
		data = data[:start]
	}
}

// byteReader returns one byte at a time, so that the rest of it is what the YAML reader did not need.
type byteReader struct{ *bytes.Reader }

func (r byteReader) Read(b []byte) (int, error) { return r.Reader.Read(b[:min(len(b), 1)]) }
