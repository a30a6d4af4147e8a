package main

import (
	"bytes"
	"encoding/hex"
	"strings"
)

// The body of /data is kept packed: each of dataWords is one byte in it, and so are the id of the link and the begin of where it leads,
// which the record has anyway. What renderJSON writes has no bytes below a space, so that none of those can be mistaken.
const (
	idWord   = 0x01
	ownWord  = 0x02 // the link's own fallback URL, which where it leads begins with
	wordBase = 0x03 // the first of dataWords
)

// dataWords are what answers have in common, the longer of two that begin alike before the other. What is not among them is kept as it
// is, so that a word too few or too many costs memory only.
var dataWords = [...]string{
	`{"id":"`, `","url":"`, `","shortCode":"`, `","path":"`,
	`","params":null,"channel":null,"utmSource":null,"utmMedium":null,"utmCampaign":null,"utmTerm":null,"utmContent":null,"fallbackUrl":`,
	`","params":null,"channel":`, `","params":`, `,"channel":`,
	`null,"utmSource":null,"utmMedium":null,"utmCampaign":null,"utmTerm":null,"utmContent":null,"fallbackUrl":`,
	`,"utmSource":null,"utmMedium":null,"utmCampaign":null,"utmTerm":null,"utmContent":null,"fallbackUrl":`,
	`,"utmSource":`, `,"utmMedium":`, `,"utmCampaign":`,
	`,"utmTerm":null,"utmContent":null,"fallbackUrl":`, `,"utmTerm":`, `,"utmContent":`, `,"fallbackUrl":`,
	`,"og":null,"expiry":null}`, `,"og":null,"expiry":`, `,"og":{"title":`, `,"description":`, `,"imageUrl":`, `},"expiry":null}`, `},"expiry":`,
	`null`,
}

// The last word must be below a space.
var _ [' ' - wordBase - len(dataWords)]struct{}

var dataPacker = func() *strings.Replacer {
	pairs := make([]string, 0, 2*len(dataWords))
	for i, word := range dataWords {
		pairs = append(pairs, word, string(rune(wordBase+i)))
	}
	return strings.NewReplacer(pairs...)
}()

// packData packs a body of /data. own is empty or what the destination begins with.
func packData(data []byte, id, own string) []byte {
	packed := bytes.ReplaceAll(data, []byte(id), []byte{idWord})
	if own != "" {
		packed = bytes.ReplaceAll(packed, []byte(own), []byte{ownWord})
	}
	return []byte(dataPacker.Replace(string(packed)))
}

// appendData appends the body of /data.
func (r record) appendData(dst []byte) []byte {
	packed := r.part(dataPart)
	rest := 0
	for i, c := range packed {
		if c >= ' ' {
			continue
		}
		dst = append(dst, packed[rest:i]...)
		rest = i + 1
		switch c {
		case idWord:
			dst = appendID(dst, r.id())
		case ownWord:
			dst = append(dst, r.own()...)
		default:
			dst = append(dst, dataWords[c-wordBase]...)
		}
	}
	return append(dst, packed[rest:]...)
}

// appendID appends a UUID as text (RFC 9562, section 4).
func appendID(dst []byte, id [16]byte) []byte {
	dst = hex.AppendEncode(dst, id[:4])
	for _, group := range [][]byte{id[4:6], id[6:8], id[8:10], id[10:]} {
		dst = hex.AppendEncode(append(dst, '-'), group)
	}
	return dst
}
