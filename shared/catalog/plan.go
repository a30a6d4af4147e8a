package catalog

// Plan is the billing plan of an organization.
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

// Terms are the limits and features of a plan.
type Terms struct {
	// Links is how many links may exist at once, or Unlimited.
	Links int64
	// APIAccess allows API keys, CustomDomains allows domains in addition to the shared host.
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

// Terms returns the terms of the plan, which are zero for an unknown plan.
func (p Plan) Terms() Terms { return terms[p] }

// ParsePlan reports whether s names a plan.
func ParsePlan(s string) (Plan, bool) {
	_, ok := terms[Plan(s)]
	return Plan(s), ok
}
