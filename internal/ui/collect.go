package ui

// GCPercent and GCFloor are when a process that is this role alone collects its garbage: at so much growth, but not below so many bytes. Beside 500 nodes and 2,000
// gangs that wait it peaks at 102 to 105 MiB with the percent, and at 132 while a forecast is made (BenchmarkRole, BenchmarkRoleForecasts). Where less lives, as while 4,000 pods
// are bound, collecting at 30 % was a quarter to a third of all that the role did.
const GCPercent, GCFloor = 30, 48 << 20
