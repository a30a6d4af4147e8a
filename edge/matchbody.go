package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"deeplink/shared/envelope"
	"deeplink/shared/strictjson"
)

// The bounds of the body of POST /match (decisions.md 4 and 9), in characters but for the depth.
const (
	maxClipboardToken  = 100
	maxInstallReferrer = 2048
	maxDeviceID        = 128
	maxAppVersion      = 64
	maxDepth           = 8
)

// claim is what an app tells about the click that it may have come from.
type claim struct {
	clipboardToken  string
	installReferrer string
	deviceID        string // empty: not told
}

// isJSON reports whether a request has a JSON body that is not compressed.
func isJSON(header *fasthttp.RequestHeader) bool {
	media, _, err := mime.ParseMediaType(string(header.ContentType()))
	return err == nil && media == "application/json" && len(header.Peek(fasthttp.HeaderContentEncoding)) == 0
}

// readClaim reads the body of POST /match, or tells all that is wrong with it. Fields it does not know are ignored: apps in the
// field are not updated when an edge is. Null is as if the field were not there.
func readClaim(body []byte) (claim, []envelope.Detail) {
	if err := strictjson.Check(body, maxDepth); err != nil {
		field := "body"
		if offence := new(strictjson.Error); errors.As(err, &offence) && offence.Field != "" {
			field = offence.Field
		}
		return claim{}, []envelope.Detail{{Field: field, Message: err.Error()}}
	}
	var f fields
	if err := json.Unmarshal(body, &f.members); err != nil || f.members == nil {
		return claim{}, []envelope.Detail{{Field: "body", Message: "body must be a JSON object"}}
	}
	if !f.has("clipboardToken") && !f.has("installReferrer") {
		f.refuse("clipboardToken", "is required unless installReferrer is there")
	}
	c := claim{
		clipboardToken:  f.text("clipboardToken", 1, maxClipboardToken),
		installReferrer: f.text("installReferrer", 0, maxInstallReferrer),
		deviceID:        f.text("deviceId", 0, maxDeviceID),
	}
	f.word("platform", "ios", "android", "web")
	f.text("appVersion", 0, maxAppVersion)
	return c, f.bad
}

// fields are the members of an object, and what was found wrong with them.
type fields struct {
	members map[string]json.RawMessage
	bad     []envelope.Detail
}

func (f *fields) has(name string) bool {
	value := f.members[name]
	return value != nil && string(value) != "null"
}

// text returns a string of so many characters, an empty one when there is none.
func (f *fields) text(name string, least, most int) (text string) {
	if !f.has(name) {
		return ""
	}
	if err := json.Unmarshal(f.members[name], &text); err != nil {
		f.refuse(name, "must be a string")
	} else if n := utf8.RuneCountInString(text); n < least || n > most {
		f.refuse(name, fmt.Sprintf("must have %d to %d characters", least, most))
	}
	return text
}

// word demands one of some words, where there is any.
func (f *fields) word(name string, words ...string) {
	var word string
	if f.has(name) && (json.Unmarshal(f.members[name], &word) != nil || !slices.Contains(words, word)) {
		f.refuse(name, "must be one of "+strings.Join(words, ", "))
	}
}

func (f *fields) refuse(name, message string) {
	f.bad = append(f.bad, envelope.Detail{Field: name, Message: name + " " + message})
}

// referredToken returns the token that a Play Store referrer carries, empty when there is none. Some devices hand the referrer over
// as it stood in the store's URL, percent-encoded as a whole.
func referredToken(referrer string) string {
	for range 2 {
		parameters, _ := url.ParseQuery(referrer) // what can be read of it
		if parameters.Has("mt") {
			return parameters.Get("mt")
		}
		decoded, err := url.QueryUnescape(referrer)
		if err != nil {
			return ""
		}
		referrer = decoded
	}
	return ""
}
