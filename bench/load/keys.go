package load

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
)

// Keys are paths of links, in the order of their popularity. They are kept as one slice of bytes, so that the garbage collector need not
// scan millions of them.
type Keys struct {
	text []byte
	ends []uint32
}

// ReadKeys reads one path or URL per line. It keeps only the path and query of a URL.
func ReadKeys(file string) (*Keys, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(text) > math.MaxUint32 {
		return nil, fmt.Errorf("%s is larger than 4 GB", file)
	}
	k := &Keys{text: make([]byte, 0, len(text))}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		path, err := pathOf(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		k.add(path)
	}
	if k.Len() == 0 {
		return nil, fmt.Errorf("%s has no keys", file)
	}
	return k, nil
}

// NewKeys returns the given paths as keys.
func NewKeys(paths ...string) *Keys {
	k := new(Keys)
	for _, path := range paths {
		k.add([]byte(path))
	}
	return k
}

func (k *Keys) add(path []byte) {
	k.text = append(k.text, path...)
	k.ends = append(k.ends, uint32(len(k.text)))
}

var errNoPath = errors.New("neither a path nor a URL with a path")

func pathOf(line []byte) ([]byte, error) {
	if _, rest, isURL := bytes.Cut(line, []byte("://")); isURL {
		slash := bytes.IndexByte(rest, '/')
		if slash < 0 {
			return nil, errNoPath
		}
		line = rest[slash:]
	}
	if line[0] != '/' {
		return nil, errNoPath
	}
	for _, c := range line {
		if c <= ' ' || c >= 0x7f {
			return nil, errNoPath
		}
	}
	return line, nil
}

// Len returns the number of keys.
func (k *Keys) Len() int { return len(k.ends) }

// At returns the i-th key, which must not be modified.
func (k *Keys) At(i int) []byte {
	begin := uint32(0)
	if i > 0 {
		begin = k.ends[i-1]
	}
	return k.text[begin:k.ends[i]]
}

// First returns the first n keys, which share their memory with the others.
func (k *Keys) First(n int) *Keys { return &Keys{text: k.text, ends: k.ends[:n]} }

// Skewed returns Paths of a Request that picks keys by Zipf's law: the n-th is requested in proportion to n^-skew. skew must be above 1.
func (k *Keys) Skewed(skew float64) Paths {
	return func(_ int, random *rand.Rand) func([]byte) []byte {
		zipf := rand.NewZipf(random, skew, 1, uint64(k.Len()-1))
		return func(to []byte) []byte { return append(to, k.At(int(zipf.Uint64()))...) }
	}
}

// InTurn returns Paths of a Request that requests the keys one after the other; each connection starts at another key.
func (k *Keys) InTurn() Paths {
	return func(_ int, random *rand.Rand) func([]byte) []byte {
		next := random.IntN(k.Len())
		return func(to []byte) []byte {
			to = append(to, k.At(next)...)
			next = (next + 1) % k.Len()
			return to
		}
	}
}

// Numbered is Skewed for count paths that consist of prefix and a number from 0.
func Numbered(prefix string, count int, skew float64) Paths {
	return func(_ int, random *rand.Rand) func([]byte) []byte {
		zipf := rand.NewZipf(random, skew, 1, uint64(count-1))
		return func(to []byte) []byte { return strconv.AppendUint(append(to, prefix...), zipf.Uint64(), 10) }
	}
}

// WithUnknown replaces a share of the paths, from 0 to 1, by codes that no link has, a new code each time.
func WithUnknown(paths Paths, share float64) Paths {
	return func(connection int, random *rand.Rand) func([]byte) []byte {
		next := paths(connection, random)
		return func(to []byte) []byte {
			begin := len(to)
			to = next(to)
			if random.Float64() >= share {
				return to
			}
			to = to[:begin+bytes.LastIndexByte(to[begin:], '/')+1]
			return strconv.AppendUint(append(to, "none-"...), random.Uint64(), 36)
		}
	}
}

// WithSuffix appends suffix to the paths, in place of their queries.
func WithSuffix(paths Paths, suffix string) Paths {
	return func(connection int, random *rand.Rand) func([]byte) []byte {
		next := paths(connection, random)
		return func(to []byte) []byte {
			begin := len(to)
			to = next(to)
			if query := bytes.IndexByte(to[begin:], '?'); query >= 0 {
				to = to[:begin+query]
			}
			return append(to, suffix...)
		}
	}
}
