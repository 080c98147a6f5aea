module app

go 1.19
