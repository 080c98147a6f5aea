module bloomgate-sample

go 1.19
