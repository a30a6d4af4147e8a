package catalog

// Plan names what an organization pays for.
type Plan string

// The plans, from the smallest.
const (
	Free       Plan = "free"
	Starter    Plan = "starter"
	Growth     Plan = "growth"
	Scale      Plan = "scale"
	Enterprise Plan = "enterprise"
)

// Unlimited is the link quota of a plan without one.
const Unlimited = -1

// Terms are what a plan contains (decisions.md 5).
type Terms struct {
	// Links is how many links may exist at once, or Unlimited.
	Links int64
	// APIAccess allows keys, CustomDomains domains beside the shared host.
	APIAccess, CustomDomains bool
	// Paid plans are selected through checkout only.
	Paid bool
}

var terms = map[Plan]Terms{
	Free:       {Links: 50},
	Starter:    {Links: 1_000, Paid: true},
	Growth:     {Links: 50_000, APIAccess: true, Paid: true},
	Scale:      {Links: 1_000_000, APIAccess: true, CustomDomains: true, Paid: true},
	Enterprise: {Links: Unlimited, APIAccess: true, CustomDomains: true, Paid: true},
}

// Terms returns what the plan contains. An unknown plan contains nothing.
func (p Plan) Terms() Terms { return terms[p] }

// ParsePlan reports whether s names a plan.
func ParsePlan(s string) (Plan, bool) {
	_, ok := terms[Plan(s)]
	return Plan(s), ok
}
