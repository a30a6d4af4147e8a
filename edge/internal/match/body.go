package match

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

// The bounds of the body of POST /match. Lengths are in characters.
const (
	maxClipboardToken  = 100
	maxInstallReferrer = 2048
	maxDeviceID        = 128
	maxAppVersion      = 64
	maxDepth           = 8
)

// request is the body of POST /match, as far as it is used.
type request struct {
	clipboardToken  string
	installReferrer string
	deviceID        string // empty: not sent
}

// isJSON reports whether the headers announce a JSON body that is not compressed.
func isJSON(header *fasthttp.RequestHeader) bool {
	media, _, err := mime.ParseMediaType(string(header.ContentType()))
	return err == nil && media == "application/json" && len(header.Peek(fasthttp.HeaderContentEncoding)) == 0
}

// parseRequest parses the body of POST /match and returns one detail for each bad field. It ignores unknown fields, because installed
// apps are not updated together with the edge. A field that is null counts as absent.
func parseRequest(body []byte) (request, []envelope.Detail) {
	if err := strictjson.Check(body, maxDepth); err != nil {
		field := "body"
		if offence := new(strictjson.Error); errors.As(err, &offence) && offence.Field != "" {
			field = offence.Field
		}
		return request{}, []envelope.Detail{{Field: field, Message: err.Error()}}
	}
	var f fields
	if err := json.Unmarshal(body, &f.members); err != nil || f.members == nil {
		return request{}, []envelope.Detail{{Field: "body", Message: "body must be a JSON object"}}
	}
	if !f.has("clipboardToken") && !f.has("installReferrer") {
		f.refuse("clipboardToken", "is required unless installReferrer is set")
	}
	r := request{
		clipboardToken:  f.text("clipboardToken", 1, maxClipboardToken),
		installReferrer: f.text("installReferrer", 0, maxInstallReferrer),
		deviceID:        f.text("deviceId", 0, maxDeviceID),
	}
	f.word("platform", "ios", "android", "web")
	f.text("appVersion", 0, maxAppVersion)
	return r, f.details
}

// fields are the members of an object, and the details of the bad ones.
type fields struct {
	members map[string]json.RawMessage
	details []envelope.Detail
}

func (f *fields) has(name string) bool {
	value := f.members[name]
	return value != nil && string(value) != "null"
}

// text returns a string of least to most characters, "" if the field is absent.
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

// word requires that the field, if present, is one of the words.
func (f *fields) word(name string, words ...string) {
	var word string
	if f.has(name) && (json.Unmarshal(f.members[name], &word) != nil || !slices.Contains(words, word)) {
		f.refuse(name, "must be one of "+strings.Join(words, ", "))
	}
}

func (f *fields) refuse(name, message string) {
	f.details = append(f.details, envelope.Detail{Field: name, Message: name + " " + message})
}

// referrerToken returns the token in a Play Store referrer, "" if there is none. Some devices pass the referrer as it was in the store's
// URL, percent-encoded as a whole.
func referrerToken(referrer string) string {
	for range 2 {
		parameters, _ := url.ParseQuery(referrer) // the parameters that can be parsed
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
