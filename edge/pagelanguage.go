package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"strings"
)

// texts are the words of the pages in one language. {app} stands for the app in whose view a page is shown, {seconds} for how long
// to wait.
type texts struct {
	Title         string `json:"title"` // of a link that has none
	About         string `json:"about"` // such a link
	Open          string `json:"open"`
	AppStore      string `json:"appStore"` // as the store's own badge has it
	Play          string `json:"play"`     // the same
	Stores        string `json:"stores"`
	Web           string `json:"web"`
	NoCopy        string `json:"noCopy"`
	Why           string `json:"why"`
	Copied        string `json:"copied"`
	ThisApp       string `json:"thisApp"` // an app whose name is not known
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

// language is all pages in one language.
type language struct {
	tag      string // RFC 5646
	headers  []byte // of a page, up to the value of its policy
	thisApp  []byte
	preview  page
	ios      page
	android  page
	landing  page
	problems [troubles]page
}

// English comes first: it is for those who ask for none of the others.
var languages = readLanguages("en", "ar", "de", "es", "fr", "it", "ja", "ko", "pt", "zh", "zh-Hant")

func readLanguages(tags ...string) []language {
	all := make([]language, len(tags))
	for i, tag := range tags {
		t := readTexts(tag)
		data := pageData{Tag: tag, Direction: "ltr", Text: t}
		if tag == "ar" {
			data.Direction = "rtl"
		}
		l := &all[i]
		// The name of a header that spans lines sets them all: see everyAnswer.
		l.headers = []byte("Vary: Accept-Language, Purpose, Sec-Purpose\r\nContent-Language: " + tag +
			"\r\nCross-Origin-Opener-Policy: same-origin\r\nContent-Security-Policy")
		l.tag, l.thisApp = tag, []byte(t.ThisApp)
		l.preview, l.landing = compile("preview", data), compile("landing", data)
		l.ios, l.android = compile("ios", data), compile("android", data)
		for trouble, words := range [troubles][2]string{
			missing: {t.Missing, t.MissingWhy}, gone: {t.Gone, t.GoneWhy}, outOfTime: {t.Expired, t.ExpiredWhy},
			busy: {t.Busy, t.BusyWhy}, broken: {t.Broken, t.BrokenWhy},
		} {
			data.Heading, data.Sentence = words[0], words[1]
			l.problems[trouble] = compile("error", data)
		}
	}
	return all
}

// readTexts panics when a text is missing: they come with the program.
func readTexts(tag string) *texts {
	file := path.Join("pages/languages", tag+".json")
	content, err := pageFiles.ReadFile(file)
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

// languageFor returns the language that a header Accept-Language asks for most (RFC 9110, 12.5.4).
func languageFor(accepted []byte) *language {
	best, weight := &languages[0], 0
	for len(accepted) > 0 {
		var item []byte
		item, accepted = cut(accepted, ',')
		tag, parameters := cut(item, ';')
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

// languageNamed returns nil when there are no pages in the language. Of a tag the first part counts, and for Chinese the script.
func languageNamed(tag []byte) *language {
	primary, rest := cut(tag, '-')
	traditional := len(primary) == 2 && primary[0]|0x20 == 'z' && primary[1]|0x20 == 'h' && isTraditional(rest)
	for i := range languages {
		known := languages[i].tag
		if bytes.EqualFold(primary, []byte(known[:2])) && traditional == (len(known) > 2) {
			return &languages[i]
		}
	}
	return nil
}

// isTraditional reports whether what follows zh- names the traditional script, or a place that writes it.
func isTraditional(rest []byte) bool {
	for len(rest) > 0 {
		var part []byte
		part, rest = cut(rest, '-')
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

// weightOf returns the weight among parameters in thousandths (RFC 9110, 12.4.2), 1000 when there is none.
func weightOf(parameters []byte) int {
	for len(parameters) > 0 {
		var parameter []byte
		parameter, parameters = cut(parameters, ';')
		name, value := cut(bytes.TrimSpace(parameter), '=')
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
