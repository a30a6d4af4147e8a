// Package click is the vocabulary of clicks, and the rules that classify them. The edge classifies a click when it records it. Control
// classifies it again from what the edge stored: the agent and the evidence. Both use the functions here, which do no I/O, never fail and
// allocate nothing. The numbers of all values are stored, so they never change.
package click

// Ruleset is the version of the rules. Every change to a rule or to a word increments it.
const Ruleset = 1

// MaxAgent is the length to which a User-Agent is truncated before it is stored, in bytes.
const MaxAgent = 512

// MaxReferrer is the length of the longest host of a referring page, in bytes. Longer ones are not stored.
const MaxReferrer = 253

// Outcome is the response of an edge to a short URL. 0 is a response that is not recorded.
type Outcome uint8

const (
	Redirect  Outcome = 1 // 302
	Handoff   Outcome = 2 // 200 with the page that opens the app
	Landing   Outcome = 3 // 200 with the landing page
	Preview   Outcome = 4 // 200 with the page for bots
	Inactive  Outcome = 5 // 410, as are the next two
	Expired   Outcome = 6
	Suspended Outcome = 7
	Unknown   Outcome = 8 // 404 for a code of a known organization
)

var outcomes = [...]string{Redirect: "redirect", Handoff: "handoff", Landing: "landing", Preview: "preview",
	Inactive: "inactive", Expired: "expired", Suspended: "suspended", Unknown: "unknown"}

// Outcomes returns the names of all outcomes.
func Outcomes() []string { return append([]string(nil), outcomes[1:]...) }

// String returns the name in the database and the API, "" for a value that is not an outcome.
func (o Outcome) String() string { return name(outcomes[:], int(o)) }

// ParseOutcome returns the outcome with this name.
func ParseOutcome(text string) (Outcome, bool) {
	o, ok := parse(outcomes[:], text)
	return Outcome(o), ok
}

// Class is the kind of client that sent a request.
type Class uint8

const (
	Internal   Class = 1 // control's canary
	Head       Class = 2
	Prefetch   Class = 3
	Assistant  Class = 4 // named "agent": a program that reads the page for its user
	PreviewBot Class = 5 // named "preview": a program that shows what a link leads to
	Bot        Class = 6
	Scanner    Class = 7 // a program that checks links for security
	Human      Class = 8
)

var classes = [...]string{Internal: "internal", Head: "head", Prefetch: "prefetch", Assistant: "agent",
	PreviewBot: "preview", Bot: "bot", Scanner: "scanner", Human: "human"}

// Classes returns the names of all classes.
func Classes() []string { return append([]string(nil), classes[1:]...) }

// String returns the name in the database and the API, "" for a value that is not a class.
func (c Class) String() string { return name(classes[:], int(c)) }

// ParseClass returns the class with this name.
func ParseClass(text string) (Class, bool) {
	c, ok := parse(classes[:], text)
	return Class(c), ok
}

// Reason is the rule that decided a class.
type Reason uint8

const (
	Canary           Reason = 1
	HeadRequest      Reason = 2
	PrefetchHeader   Reason = 3
	AssistantName    Reason = 4
	PreviewName      Reason = 5
	ScannerName      Reason = 6
	Crawler          Reason = 7
	Automation       Reason = 8
	NoAgent          Reason = 9
	NotABrowser      Reason = 10
	Listed           Reason = 11
	NoBrowserHeaders Reason = 12
	HintsContradict  Reason = 13
	Browser          Reason = 14
)

var reasons = [...]string{Canary: "canary", HeadRequest: "head", PrefetchHeader: "prefetch", AssistantName: "assistant",
	PreviewName: "preview-bot", ScannerName: "scanner-name", Crawler: "crawler", Automation: "automation", NoAgent: "no-agent",
	NotABrowser: "not-a-browser", Listed: "list", NoBrowserHeaders: "no-browser-headers", HintsContradict: "hints-contradict", Browser: "browser"}

// Reasons returns the names of all reasons.
func Reasons() []string { return append([]string(nil), reasons[1:]...) }

// String returns the name in the database and the API, "" for a value that is not a reason.
func (r Reason) String() string { return name(reasons[:], int(r)) }

// ParseReason returns the reason with this name.
func ParseReason(text string) (Reason, bool) {
	r, ok := parse(reasons[:], text)
	return Reason(r), ok
}

// classOf is the class that each reason stands for.
var classOf = [...]Class{Canary: Internal, HeadRequest: Head, PrefetchHeader: Prefetch, AssistantName: Assistant, PreviewName: PreviewBot,
	ScannerName: Scanner, Crawler: Bot, Automation: Bot, NoAgent: Bot, NotABrowser: Bot, Listed: Bot, NoBrowserHeaders: Scanner,
	HintsContradict: Scanner, Browser: Human}

// Class returns the class of the clicks with this reason, 0 for a value that is not a reason.
func (r Reason) Class() Class {
	if int(r) >= len(classOf) {
		return 0
	}
	return classOf[r]
}

func name(names []string, value int) string {
	if value >= len(names) {
		return ""
	}
	return names[value]
}

func parse(names []string, text string) (int, bool) {
	for value, name := range names {
		if name == text && name != "" {
			return value, true
		}
	}
	return 0, false
}
