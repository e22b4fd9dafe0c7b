package rulefile

import "github.com/edgelimit/edgelimit/node/rules"

// File is a rule file in memory. Name is its name in error messages.
type File struct {
	Name string
	Data []byte
}

// ParseFiles reads the rules of several files together, as Load reads those of paths. No files are no rules.
func (o Options) ParseFiles(files ...File) (*rules.Set, error) {
	if len(files) == 0 {
		return newBuilder(o).set, nil
	}
	texts := make([]text, len(files))
	for i, f := range files {
		texts[i] = text{file: f.Name, data: f.Data}
	}
	return o.parse(texts)
}
