package rulestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/edgelimit/edgelimit/node/files"
)

// A copy of a document on disk is
//
//	edgelimit copy 1 SHA256\n   of all that follows, in hexadecimal
//	DESCRIPTION\n               the Version as JSON
//	TEXT
//
// It is written to another file first, which then takes its place. Only its owner can read it. The checksum finds what
// was torn or edited; it is no signature.
const copyHeader = "edgelimit copy 1 "

func (k Kind) copyName(dir string) string { return filepath.Join(dir, k.String()+".copy") }

func encodeCopy(d Document) []byte {
	rest := bytes.Join([][]byte{encode(d.Version), d.Text}, []byte("\n"))
	return append([]byte(copyHeader+sum(rest)+"\n"), rest...)
}

func decodeCopy(b []byte) (Document, error) {
	first, rest, ok := strings.Cut(string(b), "\n")
	checksum, known := strings.CutPrefix(first, copyHeader)
	switch {
	case !ok || !known:
		return Document{}, errors.New("it is no copy that this edgelimit has written")
	case checksum != sum([]byte(rest)):
		return Document{}, errors.New("its checksum is wrong: it is torn, or somebody has edited it")
	}
	meta, text, _ := strings.Cut(rest, "\n")
	return decodeDocument([]byte(meta), []byte(text))
}

// readCopy returns the copy of a document in a directory; the zero Document if there is none, or no directory.
func readCopy(dir string, k Kind) (Document, error) {
	if dir == "" {
		return Document{}, nil
	}
	name, most := k.copyName(dir), int64(kindBounds[k].text+2*maxMeta)
	b, err := files.Read(name, most+1)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Document{}, nil
	case err != nil:
		return Document{}, fmt.Errorf("copy of the %s: %w", k, err)
	case int64(len(b)) > most:
		return Document{}, fmt.Errorf("copy of the %s: %s has more than %d bytes", k, name, most)
	}
	d, err := decodeCopy(b)
	if err == nil && len(d.Text) > kindBounds[k].text {
		err = fmt.Errorf("its text has more than %d bytes", kindBounds[k].text)
	}
	if err != nil {
		return Document{}, fmt.Errorf("copy of the %s: %s: %w", k, name, err)
	}
	return d, nil
}

// writeCopy replaces the copy of a document in a directory, which it makes.
func writeCopy(dir string, k Kind, d Document) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = replaceFile(k.copyName(dir), encodeCopy(d))
	}
	if err != nil {
		return fmt.Errorf("copy of the %s: %w", k, err)
	}
	return nil
}

// replaceFile writes a file that only its owner can read, as a whole or not at all, also where the machine stops.
func replaceFile(name string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".copy-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
