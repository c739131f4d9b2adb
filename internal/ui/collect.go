package ui

// GCPercent is at how much growth a process that is this role alone collects its garbage. Beside 500 nodes and 2,000 gangs that wait it peaks at 102 to 105 MiB with it, and at
// 132 while a forecast is made (BenchmarkRole, BenchmarkRoleForecasts).
const GCPercent = 30

// GCFloor is how many bytes such a process lets be before that. Where less lives, as while 4,000 pods are bound, collecting at GCPercent was a quarter to a third of all that the role did.
const GCFloor = 48 << 20
