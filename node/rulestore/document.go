package rulestore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

// Kind is which of the documents of a Store.
type Kind uint8

// The documents of a Store.
const (
	Rules  Kind = iota // rule files
	Limits             // overrides
	kinds
)

// kindBounds are how large a document's text may be, and how much of its history is kept: versions, and bytes of texts.
var kindBounds = [kinds]struct {
	name                 string
	text, keep, keepSize int
}{
	Rules:  {"rules", 16 << 20, 100, 64 << 20},
	Limits: {"limits", 32 << 20, 10, 64 << 20},
}

// String returns the document's name.
func (k Kind) String() string { return kindBounds[k].name }

// Bounds of what a version says of itself, in bytes.
const (
	maxAuthor  = 100
	MaxMessage = 500
	maxMeta    = 8 << 10
	maxVersion = 1 << 53 // what a script can count
)

// Version is what a version says of itself.
type Version struct {
	Version uint64    `json:"version"`
	Time    time.Time `json:"time"`
	Author  string    `json:"author"`
	Message string    `json:"message,omitempty"`
	SHA256  string    `json:"sha256"` // of the text, in hexadecimal
	Size    int       `json:"size"`   // of the text, in bytes
}

// String returns the version as a sentence about it needs it: its number, author, time and message.
func (v Version) String() string {
	text := fmt.Sprintf("version %d by %s, %s", v.Version, v.Author, v.Time.UTC().Format(time.RFC3339))
	if v.Message != "" {
		text += fmt.Sprintf(" (%s)", v.Message)
	}
	return text
}

// Document is a version with its text. The zero value is that of a Store to which nothing was published.
type Document struct {
	Version
	Text []byte
}

// NewDocument returns a document of a text. Its version is set where it is published.
func NewDocument(text []byte, author, message string, now time.Time) (Document, error) {
	d := Document{Version{Version: 1, Time: now.UTC().Truncate(time.Second), Author: author, Message: message,
		SHA256: sum(text), Size: len(text)}, text}
	return d, d.validate()
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// validate checks what the document says of itself.
func (d *Document) validate() error {
	switch v := &d.Version; {
	case v.Version == 0 || v.Version > maxVersion:
		return fmt.Errorf("the version is %d, want 1 to %d", v.Version, uint64(maxVersion))
	case v.Size != len(d.Text) || v.SHA256 != sum(d.Text):
		return errors.New("its text is not the one that was published: size or SHA-256 differ")
	case v.Time.Year() < 2000 || v.Time.Year() > 9999:
		return errors.New("its time is out of range")
	default:
		return errors.Join(checkLine("author", v.Author, maxAuthor), checkLine("message", v.Message, MaxMessage))
	}
}

// checkLine checks a short text for people.
func checkLine(what, s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("the %s has %d bytes, at most %d are allowed", what, len(s), most)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the %s has characters that cannot be printed", what)
	}
	return nil
}

// head is what is in force: the version and the SHA-256 of its text. The zero value: nothing.
type head struct {
	version uint64
	sha     string
}

func (d *Document) head() head { return head{d.Version.Version, d.SHA256} }

var headForm = regexp.MustCompile(`^([1-9][0-9]{0,15}) ([0-9a-f]{64})$`)

// String returns the head as Redis holds it; empty for nothing.
func (h head) String() string {
	if h.version == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", h.version, h.sha)
}

func parseHead(s string) (head, error) {
	if s == "" {
		return head{}, nil
	}
	m := headForm.FindStringSubmatch(s)
	if m == nil {
		return head{}, fmt.Errorf("it holds %.80q as the version in force, which no edgelimit has written", s)
	}
	version, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil || version > maxVersion {
		return head{}, fmt.Errorf("it holds version %.20s, at most %d are allowed", m[1], uint64(maxVersion))
	}
	return head{version, m[2]}, nil
}

// decodeStrictly decodes one JSON value without unknown keys, which a later edgelimit may have written.
func decodeStrictly(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// decodeDocument returns the version of a description and a text.
func decodeDocument(meta, text []byte) (Document, error) {
	d := Document{Text: text}
	if len(meta) > maxMeta {
		return Document{}, fmt.Errorf("its description has %d bytes, at most %d are allowed", len(meta), maxMeta)
	}
	if err := decodeStrictly(meta, &d.Version); err != nil {
		return Document{}, fmt.Errorf("its description cannot be read: %w", err)
	}
	if err := d.validate(); err != nil {
		return Document{}, err
	}
	return d, nil
}

// encode returns v as JSON; it has strings, numbers and times in range only.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// fileList is the text of a document of rules.
type fileList struct {
	Files []fileText `json:"files"`
}

type fileText struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

const (
	maxFiles    = 1000
	maxFileName = 255
)

// EncodeFiles returns the text of a document of rules: rule files with names that are theirs alone, in the order in
// which they are read.
func EncodeFiles(files []rulefile.File) ([]byte, error) {
	var list fileList
	for _, f := range files {
		if !utf8.Valid(f.Data) {
			return nil, fmt.Errorf("%s is not UTF-8", f.Name)
		}
		list.Files = append(list.Files, fileText{f.Name, string(f.Data)})
	}
	if err := list.validate(); err != nil {
		return nil, err
	}
	b := encode(list)
	if most := kindBounds[Rules].text; len(b) > most {
		return nil, fmt.Errorf("the rule files have %d bytes together, at most %d are allowed", len(b), most)
	}
	return b, nil
}

// DecodeFiles returns the rule files of a document of rules.
func DecodeFiles(text []byte) ([]rulefile.File, error) {
	var list fileList
	if err := decodeStrictly(text, &list); err != nil {
		return nil, fmt.Errorf("the list of rule files cannot be read: %w", err)
	}
	if err := list.validate(); err != nil {
		return nil, err
	}
	files := make([]rulefile.File, len(list.Files))
	for i, f := range list.Files {
		files[i] = rulefile.File{Name: f.Name, Data: []byte(f.Text)}
	}
	return files, nil
}

func (l *fileList) validate() error {
	if len(l.Files) == 0 || len(l.Files) > maxFiles {
		return fmt.Errorf("%d rule files, want 1 to %d", len(l.Files), maxFiles)
	}
	seen := make(map[string]bool)
	for _, f := range l.Files {
		if err := checkFileName(f.Name); err != nil {
			return err
		}
		if seen[f.Name] {
			return fmt.Errorf("two rule files are named %.80q", f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

// checkFileName refuses names that could lead out of the directory that files are written to.
func checkFileName(name string) error {
	if name == "" || len(name) > maxFileName || name[0] == '.' || strings.ContainsAny(name, `/\:`) ||
		checkLine("name", name, maxFileName) != nil {
		return fmt.Errorf("a rule file is named %.80q: want a name without directories that begins with no dot", name)
	}
	return nil
}
