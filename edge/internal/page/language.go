package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"strings"

	"github.com/valyala/fasthttp"
)

// texts are the texts of the pages in one language. {app} stands for the app whose web view shows the page, {seconds} for how long to
// wait.
type texts struct {
	Title         string `json:"title"` // of a link without a title
	About         string `json:"about"` // a link without a title
	Open          string `json:"open"`
	AppStore      string `json:"appStore"` // as on the store's badge
	Play          string `json:"play"`     // as on the store's badge
	Stores        string `json:"stores"`
	Web           string `json:"web"`
	NoCopy        string `json:"noCopy"`
	Why           string `json:"why"`
	Copied        string `json:"copied"`
	ThisApp       string `json:"thisApp"` // an unknown app
	InsideIOS     string `json:"insideIOS"`
	InsideAndroid string `json:"insideAndroid"`
	Safari        string `json:"safari"`
	Phone         string `json:"phone"`
	Scan          string `json:"scan"`
	GoTo          string `json:"goTo"`
	Code          string `json:"code"`
	Missing       string `json:"missing"`
	MissingWhy    string `json:"missingWhy"`
	Gone          string `json:"gone"`
	GoneWhy       string `json:"goneWhy"`
	Expired       string `json:"expired"`
	ExpiredWhy    string `json:"expiredWhy"`
	Busy          string `json:"busy"`
	BusyWhy       string `json:"busyWhy"`
	Broken        string `json:"broken"`
	BrokenWhy     string `json:"brokenWhy"`
	Reference     string `json:"reference"`
}

// language is the pages in one language.
type language struct {
	tag     string // RFC 5646
	headers []byte // of a page, up to the value of the Content-Security-Policy
	thisApp []byte
	preview page
	ios     page
	android page
	landing page
	errors  [errorKinds]page
}

// English comes first: it is the language of visitors who accept none of the others.
var languages = readLanguages("en", "ar", "de", "es", "fr", "it", "ja", "ko", "pt", "zh", "zh-Hant")

func readLanguages(tags ...string) []language {
	all := make([]language, len(tags))
	for i, tag := range tags {
		t := readTexts(tag)
		data := templateData{Tag: tag, Direction: "ltr", Text: t}
		if tag == "ar" {
			data.Direction = "rtl"
		}
		l := &all[i]
		// fasthttp writes a header's name as given, so a name that spans lines sets several headers in one call.
		l.headers = []byte("Vary: Accept-Language, Purpose, Sec-Purpose\r\nContent-Language: " + tag +
			"\r\nCross-Origin-Opener-Policy: same-origin\r\nContent-Security-Policy")
		l.tag, l.thisApp = tag, []byte(t.ThisApp)
		l.preview, l.landing = compile("preview", data), compile("landing", data)
		l.ios, l.android = compile("ios", data), compile("android", data)
		for kind, words := range [errorKinds][2]string{
			Missing: {t.Missing, t.MissingWhy}, Gone: {t.Gone, t.GoneWhy}, Expired: {t.Expired, t.ExpiredWhy},
			Busy: {t.Busy, t.BusyWhy}, Broken: {t.Broken, t.BrokenWhy},
		} {
			data.Heading, data.Sentence = words[0], words[1]
			l.errors[kind] = compile("error", data)
		}
	}
	return all
}

// readTexts panics when a text is Missing: they come with the program.
func readTexts(tag string) *texts {
	file := path.Join("templates/languages", tag+".json")
	content, err := files.ReadFile(file)
	if err != nil {
		panic(err)
	}
	t := new(texts)
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(t); err != nil {
		panic(fmt.Sprintf("%s: %v", file, err))
	}
	fields := reflect.ValueOf(t).Elem()
	for i := range fields.NumField() {
		text := fields.Field(i).String()
		if text == "" || strings.Contains(text, "[[") {
			panic(fmt.Sprintf("%s: %s is %q", file, fields.Type().Field(i).Name, text))
		}
		fields.Field(i).SetString(strings.NewReplacer("{app}", "[[app]]", "{seconds}", "[[seconds]]").Replace(text))
	}
	return t
}

var (
	acceptLanguage = []byte("Accept-Language")

	comma, semicolon, hyphen, equals = []byte(","), []byte(";"), []byte("-"), []byte("=")
)

// languageOf returns the language for a request.
func languageOf(ctx *fasthttp.RequestCtx) *language {
	return languageFor(ctx.Request.Header.PeekCanonical(acceptLanguage))
}

// languageFor returns the language that a header Accept-Language prefers (RFC 9110, section 12.5.4).
func languageFor(accepted []byte) *language {
	best, weight := &languages[0], 0
	for len(accepted) > 0 {
		var item []byte
		item, accepted, _ = bytes.Cut(accepted, comma)
		tag, parameters, _ := bytes.Cut(item, semicolon)
		w := weightOf(parameters)
		if w <= weight {
			continue
		}
		if l := languageNamed(bytes.TrimSpace(tag)); l != nil {
			best, weight = l, w
		}
	}
	return best
}

// languageNamed returns nil if there are no pages in the language. The first subtag decides, and for Chinese also the script.
func languageNamed(tag []byte) *language {
	primary, rest, _ := bytes.Cut(tag, hyphen)
	traditional := len(primary) == 2 && primary[0]|0x20 == 'z' && primary[1]|0x20 == 'h' && isTraditional(rest)
	for i := range languages {
		known := languages[i].tag
		if bytes.EqualFold(primary, []byte(known[:2])) && traditional == (len(known) > 2) {
			return &languages[i]
		}
	}
	return nil
}

// isTraditional reports whether the subtags after zh- name the traditional script or a region that uses it.
func isTraditional(rest []byte) bool {
	for len(rest) > 0 {
		var part []byte
		part, rest, _ = bytes.Cut(rest, hyphen)
		switch {
		case bytes.EqualFold(part, []byte("Hans")):
			return false
		case bytes.EqualFold(part, []byte("Hant")), bytes.EqualFold(part, []byte("TW")),
			bytes.EqualFold(part, []byte("HK")), bytes.EqualFold(part, []byte("MO")):
			return true
		}
	}
	return false
}

// weightOf returns the weight q of parameters in thousandths (RFC 9110, section 12.4.2), 1000 if there is none.
func weightOf(parameters []byte) int {
	for len(parameters) > 0 {
		var parameter []byte
		parameter, parameters, _ = bytes.Cut(parameters, semicolon)
		name, value, _ := bytes.Cut(bytes.TrimSpace(parameter), equals)
		if len(name) != 1 || name[0]|0x20 != 'q' || len(value) == 0 || value[0] != '0' {
			continue
		}
		weight, unit := 0, 100
		for i := 2; i < len(value) && '0' <= value[i] && value[i] <= '9'; i++ {
			weight += int(value[i]-'0') * unit
			unit /= 10
		}
		return weight
	}
	return 1000
}
