package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/store"
)

const (
	keyHeader = "Idempotency-Key"
	// replayedHeader is on the response to a repeated request, and on no other.
	replayedHeader = "Idempotency-Replayed"
	// maxKey bounds an idempotency key in characters.
	maxKey = 255
)

// What became of a write with an idempotency key, as a label of metrics.
const (
	keyFirst      = "first"
	keyReplayed   = "replayed"
	keyReused     = "reused"
	keyInProgress = "in_progress"
)

// idempotencyKey is the decoded Idempotency-Key of a request; empty: it has none.
type idempotencyKey string

// readKey reads the header: a string of RFC 8941, 3.3.3, or the same value without quotes. The error is a catalog.Invalid.
func readKey(header http.Header) (idempotencyKey, error) {
	values := header.Values(keyHeader)
	if len(values) == 0 {
		return "", nil
	}
	if len(values) == 1 {
		if key, ok := parseKey(values[0]); ok {
			return idempotencyKey(key), nil
		}
	}
	return "", decode.FieldError(keyHeader, `must be one value of 1 to 255 printable ASCII characters without spaces, such as "8e03978e-40d5-43dd-bc93-6894a57f9324"`)
}

// refuseKey returns an error for a request with the header, for a route whose response control cannot store.
func refuseKey(header http.Header) error {
	if len(header.Values(keyHeader)) == 0 {
		return nil
	}
	return decode.FieldError(keyHeader, "is not accepted here: control does not store the raw API key, so it cannot return the key again")
}

// parseKey decodes a value of the header.
func parseKey(value string) (key string, ok bool) {
	if strings.HasPrefix(value, `"`) {
		if value, ok = unquote(value); !ok {
			return "", false
		}
	} else if strings.ContainsAny(value, `",;\`) {
		return "", false
	}
	visible := !strings.ContainsFunc(value, func(r rune) bool { return r < '!' || r > '~' })
	return value, visible && len(value) >= 1 && len(value) <= maxKey
}

// unquote decodes a string of RFC 8941, which must be all of value.
func unquote(value string) (text string, ok bool) {
	var decoded strings.Builder
	for i := 1; i < len(value); i++ {
		switch b := value[i]; b {
		case '"':
			return decoded.String(), i == len(value)-1
		case '\\':
			if i++; i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", false
			}
			decoded.WriteByte(value[i])
		default:
			decoded.WriteByte(b)
		}
	}
	return "", false
}

// of returns the key with the scope and the fingerprint of its request, nil for a request without one. parameter is the value of the path's
// parameter in its canonical form, and body a JSON value, or nil if the route reads none.
func (k idempotencyKey) of(r *http.Request, parameter string, body []byte) *store.IdempotencyKey {
	if k == "" {
		return nil
	}
	return &store.IdempotencyKey{
		Scope:       digest([]string{r.Method, chi.RouteContext(r.Context()).RoutePattern(), parameter, string(k)}),
		Fingerprint: digest(queryParts(r.URL.RawQuery), r.Header.Values("If-Match"), r.Header.Values("If-None-Match"), []string{canonicalJSON(body)}),
	}
}

// digest returns the SHA-256 of lists of texts, each with its length, so that no two different lists have the same bytes.
func digest(lists ...[]string) [sha256.Size]byte {
	h := sha256.New()
	for _, list := range lists {
		writeLength(h, len(list))
		for _, text := range list {
			writeLength(h, len(text))
			h.Write([]byte(text))
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func writeLength(h hash.Hash, n int) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(n))
	h.Write(length[:])
}

// queryParts returns the parameters of a query as names and values in turn, sorted by name, then value.
func queryParts(raw string) []string {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return []string{raw} // no route that takes a key reads its query
	}
	var names []string
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	var parts []string
	for _, name := range names {
		slices.Sort(values[name])
		for _, value := range values[name] {
			parts = append(parts, name, value)
		}
	}
	return parts
}

// canonicalJSON returns a JSON value with sorted members, decoded strings and no white space. Numbers stay as written.
func canonicalJSON(body []byte) string {
	if body == nil {
		return ""
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return string(body) // readBody has checked it
	}
	text, err := json.Marshal(value)
	if err != nil {
		return string(body)
	}
	return string(text)
}

// keyed counts a write with a key by what became of it.
func (m *metrics) keyed(key *store.IdempotencyKey, out store.Written, err error) {
	switch {
	case key == nil:
	case errors.Is(err, store.ErrKeyReused):
		m.idempotency.WithLabelValues(keyReused).Inc()
	case errors.Is(err, store.ErrKeyInProgress):
		m.idempotency.WithLabelValues(keyInProgress).Inc()
	case err == nil && out.Replayed:
		m.idempotency.WithLabelValues(keyReplayed).Inc()
	case err == nil:
		m.idempotency.WithLabelValues(keyFirst).Inc()
	}
}
