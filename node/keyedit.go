package node

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/node/listen"
)

// AddGossipKey adds a random gossip key to a key file, as one to accept, and returns its name. Nodes that use the file
// read it again by themselves.
func AddGossipKey(file string) (name string, err error) {
	key := make([]byte, gossipKeySize)
	_, _ = rand.Read(key) // never fails
	return KeyName(key), editKeyFile(file, func(keys [][]byte) ([][]byte, error) { return append(keys, key), nil })
}

// UseGossipKey makes the key with the name the one that nodes send by.
func UseGossipKey(file, name string) error {
	return editKeyFile(file, func(keys [][]byte) ([][]byte, error) {
		i, err := findKey(keys, name)
		if err != nil {
			return nil, err
		}
		return slices.Concat(keys[i:i+1], keys[:i], keys[i+1:]), nil
	})
}

// RemoveGossipKey removes the key with the name from a key file, unless nodes send by it.
func RemoveGossipKey(file, name string) error {
	return editKeyFile(file, func(keys [][]byte) ([][]byte, error) {
		i, err := findKey(keys, name)
		if err == nil && i == 0 {
			err = fmt.Errorf("nodes send by %s: use another one first", name)
		}
		if err != nil {
			return nil, err
		}
		return slices.Concat(keys[:i], keys[i+1:]), nil
	})
}

func findKey(keys [][]byte, name string) (index int, err error) {
	index = slices.IndexFunc(keys, func(k []byte) bool { return KeyName(k) == name })
	if index < 0 {
		return 0, fmt.Errorf("it has no gossip key %.20s", name)
	}
	return index, nil
}

// editKeyFile replaces the gossip keys of a key file. Another file takes its place, with its owner, and mode 0600;
// comments stay where they are. One edit takes place at a time. Errors name no key.
func editKeyFile(name string, edit func(gossip [][]byte) ([][]byte, error)) error {
	err := func() error {
		file, err := filepath.EvalSymlinks(name)
		if err != nil {
			return err
		}
		next := file + ".new"
		f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s is there: another command edits the keys now, or was killed: remove it then", next)
		} else if err != nil {
			return err
		}
		err = writeEdited(f, file, edit)
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(next, file)
		}
		if err != nil {
			_ = os.Remove(next)
		}
		return err
	}()
	if err != nil {
		return fmt.Errorf("key file %s: %w", name, listen.ExplainFile(name, err))
	}
	return nil
}

func writeEdited(f *os.File, file string, edit func(gossip [][]byte) ([][]byte, error)) error {
	text, err := readSecret(file)
	if err != nil {
		return err
	}
	keys, err := parseKeys(text)
	if err != nil {
		return err
	}
	edited, err := edit(keys.Gossip)
	if err != nil {
		return err
	}
	var lines []string
	for line := range strings.SplitSeq(string(text), "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "gossip:") {
			lines = append(lines, line)
			continue
		}
		for _, k := range edited { // in the place of the first
			lines = append(lines, "gossip: "+base64.StdEncoding.EncodeToString(k))
		}
		edited = nil
	}
	if _, err = parseKeys([]byte(strings.Join(lines, "\n"))); err != nil { // as with too many
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if err := keepOwner(f, info); err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, "\n"))
	return errors.Join(err, f.Sync())
}
